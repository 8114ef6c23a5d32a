// Filters on sequences and mappings.
#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/selector.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

Value LengthFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("length", arguments, {});
  const std::optional<std::size_t> length = runtime.Length(subject);
  if (!length) Fail("object of type '{}' has no len()", TypeName(subject));
  return Value::Size(*length);
}

Value Nothing(Runtime& runtime, std::string_view why) {
  const Value text = runtime.String(std::string(why));
  return Value::Undefined(Lack::kOther, text.AsStr());
}

Value First(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("first", arguments, {});
  Iteration iteration(runtime, subject);
  Value item;
  if (iteration.Next(runtime, item)) return item;
  return Nothing(runtime, "No first item, sequence was empty.");
}

Value Last(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("last", arguments, {});
  const std::optional<std::size_t> length = runtime.Length(subject);
  if (!length) Fail("'{}' object is not reversible", TypeName(subject));
  if (*length == 0) return Nothing(runtime, "No last item, sequence was empty.");
  if (subject.Is(Kind::kDict)) return subject.AsDict().entries.back().first;
  if (subject.Is(Kind::kDictView)) return runtime.ToList(subject)->items.back();
  return runtime.Item(subject, Value::Int(-1));
}

Value ListFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return Value::Of(runtime.ToList(subject));
}

Value JoinFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.Has(0) ? runtime.ToString(bound[0]) : "";
  const Selector selector(runtime, bound[1]);
  std::string out;
  Iteration iteration(runtime, subject);
  bool first = true;
  for (Value item; iteration.Next(runtime, item); first = false) {
    if (!first) out += separator;
    runtime.AppendString(out, selector.Select(runtime, item));
    runtime.CheckSize(out.size());
  }
  return runtime.String(std::move(out));
}

Value Sum(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const Selector selector(runtime, bound[0]);
  Value total = bound.Has(1) ? bound[1] : Value::Int(0);
  if (total.string()) Fail("sum() can't sum strings [use ''.join(seq) instead]");
  Iteration iteration(runtime, subject);
  for (Value item; iteration.Next(runtime, item);) {
    total = runtime.Binary(Operator::kAdd, total, selector.Select(runtime, item));
  }
  return total;
}

// Strings compare without case unless asked.
Value CaseKey(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.string()) return value;
  return runtime.String(Lower(value.Text()));
}

Value Extreme(Runtime& runtime, const Value& subject, Arguments& arguments, bool largest) {
  const Bound bound(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.Truth(runtime, 0);
  const Selector selector(runtime, bound[1]);
  Iteration iteration(runtime, subject);
  Value best;
  Value best_key;
  for (Value item; iteration.Next(runtime, item);) {
    Value key = CaseKey(runtime, selector.Select(runtime, item), case_sensitive);
    if (best.missing() ||
        (largest ? runtime.Less(best_key, key, ">") : runtime.Less(key, best_key))) {
      best = item;
      best_key = std::move(key);
    }
  }
  if (best.missing()) return Nothing(runtime, "No aggregated item, sequence was empty.");
  return best;
}
Value Min(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Extreme(runtime, subject, arguments, false);
}
Value Max(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Extreme(runtime, subject, arguments, true);
}

struct Keyed {
  Value key;
  Value item;
};

// Stable, also where it is reversed, as Python's.
void SortKeyed(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? runtime.Less(b.key, a.key) : runtime.Less(a.key, b.key);
  });
}

Value ListOfItems(Runtime& runtime, const std::vector<Keyed>& items) {
  List* list = runtime.NewList(items.size());
  for (const Keyed& keyed : items) runtime.Append(*list, keyed.item);
  return Value::Of(list);
}

Value Sort(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.Truth(runtime, 1);
  std::vector<Selector> selectors;  // "a,b" sorts by a, then by b
  if (bound.Has(2) && bound[2].string()) {
    const std::string_view names = bound[2].Text();
    for (std::size_t at = 0; at <= names.size();) {
      const std::size_t end = std::min(names.find(',', at), names.size());
      selectors.emplace_back(runtime, runtime.String(std::string(names.substr(at, end - at))));
      at = end + 1;
    }
  } else {
    selectors.emplace_back(runtime, bound[2]);
  }
  std::vector<Keyed> items;
  Iteration iteration(runtime, subject);
  for (Value item; iteration.Next(runtime, item);) {
    List* keys = runtime.NewList(selectors.size());
    for (const Selector& selector : selectors) {
      runtime.Append(*keys, CaseKey(runtime, selector.Select(runtime, item), case_sensitive));
    }
    items.push_back({Value::Of(keys), item});
  }
  SortKeyed(runtime, items, bound.Truth(runtime, 0));
  return ListOfItems(runtime, items);
}

Value DictSort(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (subject.undefined()) FailUndefined(subject);
  if (!subject.Is(Kind::kDict)) Fail("'{}' object has no attribute 'items'", TypeName(subject));
  const std::string by = bound.Has(1) ? bound.Text(1) : "key";
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  const bool case_sensitive = bound.Truth(runtime, 0);
  std::vector<Keyed> items;
  for (const auto& [key, value] : subject.AsDict().entries) {
    items.push_back(
        {CaseKey(runtime, by == "key" ? key : value, case_sensitive), runtime.Tuple({key, value})});
  }
  SortKeyed(runtime, items, bound.Truth(runtime, 2));
  return ListOfItems(runtime, items);
}

Value Unique(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.Truth(runtime, 0);
  const Selector selector(runtime, bound[1]);
  Dict* seen = runtime.NewDict();
  return runtime.MakeGenerator([iteration = Iteration(runtime, subject), selector, case_sensitive,
                                seen](Runtime& rt, Value& out) mutable {
    while (iteration.Next(rt, out)) {
      const Value key = CaseKey(rt, selector.Select(rt, out), case_sensitive);
      if (seen->Find(rt, key) >= 0) continue;
      seen->Set(rt, key, Value::None());
      return true;
    }
    return false;
  });
}

// A generator over the items of a list.
Value GeneratorOf(Runtime& runtime, const List* list) {
  return runtime.MakeGenerator([list, at = std::size_t{0}](Runtime& rt, Value& out) mutable {
    rt.Step();
    if (at >= list->items.size()) return false;
    out = list->items[at++];
    return true;
  });
}

Value Reverse(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  if (subject.string()) {
    return runtime.Slice(subject, Value::None(), Value::None(), Value::Int(-1));
  }
  List* list = runtime.ToList(subject);
  std::reverse(list->items.begin(), list->items.end());
  return subject.Is(Kind::kIterator) ? Value::Of(list) : GeneratorOf(runtime, list);
}

Value ItemsFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("items", arguments, {});
  // A generator in Jinja too: it fails when it is gone through.
  return runtime.MakeGenerator([subject, at = std::size_t{0}](Runtime& rt, Value& out) mutable {
    rt.Step();
    if (subject.undefined()) return false;
    if (!subject.Is(Kind::kDict)) Fail("Can only get item pairs from a mapping.");
    const Dict& dict = subject.AsDict();
    if (at >= dict.entries.size()) return false;
    out = rt.Tuple({dict.entries[at].first, dict.entries[at].second});
    ++at;
    return true;
  });
}

Value GroupBy(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound.Truth(runtime, 2);
  const Selector selector(runtime, bound[0], bound[1]);
  std::vector<Keyed> items;
  Iteration iteration(runtime, subject);
  for (Value item; iteration.Next(runtime, item);) {
    items.push_back({CaseKey(runtime, selector.Select(runtime, item), case_sensitive), item});
  }
  SortKeyed(runtime, items, false);
  List* groups = runtime.NewList();
  for (std::size_t begin = 0; begin < items.size();) {
    List* members = runtime.NewList();
    std::size_t end = begin;
    while (end < items.size() && runtime.Equal(items[end].key, items[begin].key)) {
      runtime.Append(*members, items[end++].item);
    }
    List* group = runtime.NewList(2);
    group->group = true;
    runtime.Append(*group, selector.Select(runtime, items[begin].item));
    runtime.Append(*group, Value::Of(members));
    runtime.Append(*groups, Value::Of(group, true));
    if (end == begin) ++end;  // a key that does not equal itself (nan)
    begin = end;
  }
  return Value::Of(groups);
}

Value Batch(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const Integer size = bound.Int(0, 1);
  List* rows = runtime.NewList();
  List* row = nullptr;
  Iteration iteration(runtime, subject);
  for (Value item; iteration.Next(runtime, item);) {
    if (row == nullptr || static_cast<Integer>(row->items.size()) == size) {
      row = runtime.NewList();
      runtime.Append(*rows, Value::Of(row));
    }
    runtime.Append(*row, std::move(item));
  }
  if (row != nullptr && bound.Has(1) && !bound[1].none()) {
    while (static_cast<Integer>(row->items.size()) < size) {
      runtime.Step();
      runtime.Append(*row, bound[1]);
    }
  }
  return GeneratorOf(runtime, rows);
}

Value SliceFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const List* all = runtime.ToList(subject);
  const Integer slices = bound.Int(0, 1);
  if (slices == 0) Fail("integer division or modulo by zero");
  const auto length = static_cast<Integer>(all->items.size());
  const Integer every = length / slices;
  const Integer extra = length % slices;
  List* rows = runtime.NewList();
  auto at = all->items.begin();
  for (Integer i = 0; i < slices; ++i) {
    runtime.Step();
    List* row = runtime.NewList();
    const Integer size = every + (i < extra ? 1 : 0);
    for (Integer k = 0; k < size; ++k) runtime.Append(*row, *at++);
    if (bound.Has(1) && !bound[1].none() && i >= extra) runtime.Append(*row, bound[1]);
    runtime.Append(*rows, Value::Of(row));
  }
  return GeneratorOf(runtime, rows);
}

constexpr NamedFilter kFilters[] = {
    {"length", LengthFilter},
    {"count", LengthFilter},
    {"first", First},
    {"last", Last},
    {"list", ListFilter},
    {"join", JoinFilter},
    {"sum", Sum},
    {"min", Min},
    {"max", Max},
    {"sort", Sort},
    {"unique", Unique},
    {"reverse", Reverse},
    {"dictsort", DictSort},
    {"items", ItemsFilter},
    {"groupby", GroupBy},
    {"batch", Batch},
    {"slice", SliceFilter},
};

}  // namespace

Table<NamedFilter> SequenceFilters() { return {kFilters, std::size(kFilters)}; }

}  // namespace kvasir::text::jinja
