#include "text/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "text/jinja/functions.h"

namespace kvasir::text::jinja {

// Variables of their own from here to the end of the C++ scope.
class Interpreter::Scope {
 public:
  Scope(Interpreter& interpreter, Frame* parent)
      : interpreter_(interpreter), outer_(interpreter.frame_) {
    interpreter_.frame_ = interpreter_.NewFrame(parent);
  }
  ~Scope() {
    interpreter_.Release(interpreter_.frame_);
    interpreter_.frame_ = outer_;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Interpreter& interpreter_;
  Frame* outer_;
};

// A macro, or the body of a call block.
struct Interpreter::Macro final : Callable {
  Macro(Interpreter* i, const Node* n, Frame* c) : interpreter(i), node(n), closure(c) {}
  Value Call(Runtime&, Arguments& arguments) override {
    return interpreter->CallMacro(*this, arguments);
  }
  Value Attribute(Runtime&, std::string_view name) override {
    if (name == "name" && node->name != nullptr) return Value::String(node->name);
    return {};
  }
  [[nodiscard]] const char* TypeName() const override { return "Macro"; }
  [[nodiscard]] std::string Repr() const override {
    return node->name == nullptr ? "<Macro anonymous>" : "<Macro '" + node->name->text + "'>";
  }
  [[nodiscard]] std::string_view Name() const {
    return node->name == nullptr ? std::string_view("caller") : std::string_view(node->name->text);
  }
  Interpreter* interpreter;
  const Node* node;
  Frame* closure;
};

// The variable `loop`, and what drives the loop.
struct Interpreter::Loop final : Callable {
  Loop(Interpreter* i, const Node* n, Frame* d, const Value& iterable, int depth)
      : interpreter(i),
        node(n),
        definition(d),
        source(iterable),
        iteration(i->runtime_, iterable),
        depth0(depth) {}

  // The next item that passes the loop's filter, not yet taken.
  bool Fetch(Value& out) {
    while (iteration.Next(interpreter->runtime_, out)) {
      if (node->c == nullptr) return true;
      const Scope scope(*interpreter, definition);
      interpreter->Assign(node->a, out);
      if (interpreter->runtime_.Truth(interpreter->Evaluate(node->c))) return true;
    }
    return false;
  }

  bool Peek() {
    if (ahead.empty()) {
      Value item;
      if (Fetch(item)) ahead.push_back(std::move(item));
    }
    return !ahead.empty();
  }

  bool Advance() {
    if (!Peek()) return false;
    previous = std::move(current);
    current = std::move(ahead.front());
    ahead.pop_front();
    ++index0;
    return true;
  }

  std::size_t Length() {
    if (node->c == nullptr) {
      if (const auto length = interpreter->runtime_.Length(source)) return *length;
    }
    for (Value item; Fetch(item);) {
      interpreter->runtime_.heap.Charge(sizeof(Value));
      ahead.push_back(std::move(item));
    }
    return static_cast<std::size_t>(index0 + 1) + ahead.size();
  }

  Value Call(Runtime& runtime, Arguments& arguments) override {
    const Bound bound("loop", arguments, {"iterable"}, 1);
    if (!node->flag) Fail("the loop must have the 'recursive' marker to be called");
    Interpreter& in = *interpreter;
    return runtime.String(
        in.Captured([&] { (void)in.RunLoop(node, definition, bound[0], depth0 + 1); }));
  }

  Value Attribute(Runtime& runtime, std::string_view name) override;
  [[nodiscard]] const char* TypeName() const override { return "LoopContext"; }

  Interpreter* interpreter;
  const Node* node;
  Frame* definition;
  Value source;
  Iteration iteration;
  int depth0;
  int64_t index0 = -1;
  std::deque<Value> ahead;
  Value previous;
  Value current;
  Value changed;
};

struct Interpreter::LoopMethod final : Callable {
  LoopMethod(Loop* l, bool c) : loop(l), cycle(c) {}
  Value Call(Runtime& runtime, Arguments& arguments) override {
    if (!arguments.named.empty()) Fail("loop methods take no keyword arguments");
    if (cycle) {
      if (arguments.positional.empty()) Fail("no items for cycling given");
      return arguments
          .positional[static_cast<std::size_t>(loop->index0) % arguments.positional.size()];
    }
    List* list = runtime.NewList();
    for (const Value& value : arguments.positional) runtime.Append(*list, value);
    Value now = Value::Of(list, true);
    const bool same = !loop->changed.missing() && runtime.Equal(loop->changed, now);
    if (!same) loop->changed = std::move(now);
    return Value::Bool(!same);
  }
  Loop* loop;
  bool cycle;
};

Value Interpreter::Loop::Attribute(Runtime& runtime, std::string_view name) {
  const auto neighbor = [&](const Value& item, std::string_view what) {
    if (!item.missing()) return item;
    const Value text = runtime.String(std::string(what));
    return Value::Undefined(Lack::kOther, text.AsStr());
  };
  if (name == "index0") return Value::Int(index0);
  if (name == "index") return Value::Int(index0 + 1);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "last") return Value::Bool(!Peek());
  if (name == "length") return Value::Size(Length());
  if (name == "revindex") return Value::Int(static_cast<Integer>(Length()) - index0);
  if (name == "revindex0") return Value::Int(static_cast<Integer>(Length()) - index0 - 1);
  if (name == "depth") return Value::Int(depth0 + 1);
  if (name == "depth0") return Value::Int(depth0);
  if (name == "previtem") return neighbor(previous, "there is no previous item");
  if (name == "nextitem")
    return neighbor(Peek() ? ahead.front() : Value(), "there is no next item");
  if (name == "cycle" || name == "changed") {
    return Value::Of(static_cast<Callable*>(runtime.heap.New<LoopMethod>(this, name == "cycle")));
  }
  return {};
}

Interpreter::Interpreter(const Tree& tree, const RenderOptions& options)
    : tree_(tree), runtime_(options), globals_(tree.symbol_names.size()) {}

bool Interpreter::Reads(const std::string& name) const {
  const auto at = tree_.symbols.find(name);
  return at != tree_.symbols.end() &&
         std::find(tree_.hidden.begin(), tree_.hidden.end(), at->second) == tree_.hidden.end();
}

void Interpreter::SetVariable(const std::string& name, Value value) {
  globals_[static_cast<std::size_t>(tree_.symbols.at(name))] = std::move(value);
}

void Interpreter::AddGlobals() {
  for (std::size_t i = 0; i < globals_.size(); ++i) {
    globals_[i] = FindGlobal(runtime_, tree_.symbol_names[i]->text);
  }
}

std::string Interpreter::Run() {
  (void)Execute(tree_.body);
  return std::move(output_);
}

// ---- variables

Frame* Interpreter::NewFrame(Frame* parent) {
  Frame* frame = nullptr;
  if (free_frames_.empty()) {
    runtime_.heap.Charge(sizeof(Frame));
    frame = &frames_.emplace_back();
  } else {
    frame = free_frames_.back();
    free_frames_.pop_back();
  }
  frame->parent = parent;
  return frame;
}

void Interpreter::Release(Frame* frame) {
  if (frame->captured) return;
  frame->variables.clear();
  free_frames_.push_back(frame);
}

void Interpreter::Capture(Frame* frame) {
  for (; frame != nullptr && !frame->captured; frame = frame->parent) frame->captured = true;
}

const Value* Interpreter::Lookup(int symbol) const {
  for (const Frame* frame = frame_; frame != nullptr; frame = frame->parent) {
    for (const auto& [name, value] : frame->variables) {
      if (name == symbol) return &value;
    }
  }
  const Value& value = globals_[static_cast<std::size_t>(symbol)];
  return value.missing() ? nullptr : &value;
}

void Interpreter::Store(int symbol, Value value) {
  if (frame_ == nullptr) {
    globals_[static_cast<std::size_t>(symbol)] = std::move(value);
    return;
  }
  for (auto& [name, stored] : frame_->variables) {
    if (name == symbol) {
      stored = std::move(value);
      return;
    }
  }
  frame_->variables.emplace_back(symbol, std::move(value));
}

void Interpreter::Hide(const std::vector<int>& symbols) {
  for (const int symbol : symbols) {
    Str* name = tree_.symbol_names[static_cast<std::size_t>(symbol)];
    Store(symbol, Value::Undefined(Lack::kVariable, name));
  }
}

void Interpreter::Assign(const Node* target, const Value& value) {
  switch (target->kind) {
    case NodeKind::kName:
      Store(target->symbol, value);
      return;
    case NodeKind::kNamespaceRef:
      AssignNamespace(target, value);
      return;
    default:
      break;
  }
  const List* items = runtime_.ToList(value);
  if (items->items.size() != target->items.size()) {
    Fail("cannot unpack {} values into {} names", items->items.size(), target->items.size());
  }
  for (std::size_t i = 0; i < target->items.size(); ++i) Assign(target->items[i], items->items[i]);
}

void Interpreter::AssignNamespace(const Node* target, const Value& value) {
  const Value owner = Evaluate(target->a);
  if (!owner.Is(Kind::kNamespace)) Fail("cannot assign attribute on non-namespace object");
  if (target->name->text.starts_with('_')) {
    Fail("a namespace cannot have attributes that begin with an underscore: '{}'",
         target->name->text);
  }
  owner.AsNamespace().attributes.Set(runtime_, Value::String(target->name), value);
}

// ---- output

void Interpreter::Emit(std::string_view text) {
  runtime_.StepBytes(text.size());
  if (out_->size() + text.size() > runtime_.options.limits.output_bytes) {
    Fail("the output is longer than {} bytes", runtime_.options.limits.output_bytes);
  }
  out_->append(text);
}

void Interpreter::EmitValue(const Value& value) {
  if (value.string()) {
    Emit(value.Text());
  } else {
    Emit(runtime_.ToString(value));
  }
}

template <typename Action>
std::string Interpreter::Captured(const Action& action) {
  std::string buffer;
  std::string* const outer = std::exchange(out_, &buffer);
  action();
  out_ = outer;
  return buffer;
}

// ---- statements

Interpreter::Flow Interpreter::Execute(const std::vector<Node*>& body) {
  for (const Node* node : body) {
    const Flow flow = Execute(node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Node* node) {
  const Runtime::Level level(runtime_);
  runtime_.Step();
  runtime_.line = node->line;
  switch (node->kind) {
    case NodeKind::kText:
      Emit(node->constant.Text());
      return Flow::kNext;
    case NodeKind::kPrint:
      EmitValue(Evaluate(node->a));
      return Flow::kNext;
    case NodeKind::kIf:
      return ExecuteIf(node);
    case NodeKind::kFor:
      return ExecuteFor(node);
    case NodeKind::kSet:
      Assign(node->a, Evaluate(node->b));
      return Flow::kNext;
    case NodeKind::kSetBlock: {
      Flow flow = Flow::kNext;
      const std::string text = Captured([&] {
        const Scope scope(*this, frame_);
        Hide(node->hidden);
        flow = Execute(node->body);
      });
      if (flow == Flow::kNext) ExecuteSetBlock(node, text);
      return flow;
    }
    case NodeKind::kFilterBlock: {
      Flow flow = Flow::kNext;
      const std::string text = Captured([&] {
        const Scope scope(*this, frame_);
        Hide(node->hidden);
        flow = Execute(node->body);
      });
      if (flow != Flow::kNext) return flow;
      filter_input_ = runtime_.String(text);
      EmitValue(Evaluate(node->a));
      return Flow::kNext;
    }
    case NodeKind::kMacro:
      Capture(frame_);
      Store(node->symbol,
            Value::Of(static_cast<Callable*>(runtime_.heap.New<Macro>(this, node, frame_))));
      return Flow::kNext;
    case NodeKind::kCallBlock: {
      Capture(frame_);
      const Value caller =
          Value::Of(static_cast<Callable*>(runtime_.heap.New<Macro>(this, node, frame_)));
      EmitValue(EvaluateCall(node->a, caller));
      return Flow::kNext;
    }
    case NodeKind::kWith:
      return ExecuteWith(node);
    case NodeKind::kScope: {
      const Scope scope(*this, frame_);
      Hide(node->hidden);
      return Execute(node->body);
    }
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      Fail("{}", node->name->text);
  }
}

Interpreter::Flow Interpreter::ExecuteIf(const Node* node) {
  if (runtime_.Truth(Evaluate(node->a))) return Execute(node->body);
  for (const Node* branch : node->elifs) {
    runtime_.line = branch->line;
    if (runtime_.Truth(Evaluate(branch->a))) return Execute(branch->body);
  }
  return Execute(node->otherwise);
}

Interpreter::Flow Interpreter::ExecuteFor(const Node* node) {
  if (node->flag || node->c != nullptr) Capture(frame_);  // the loop may be kept and used later
  return RunLoop(node, frame_, Evaluate(node->b), 0);
}

Interpreter::Flow Interpreter::RunLoop(const Node* node, Frame* definition, const Value& iterable,
                                       int depth) {
  const Runtime::Level level(runtime_);
  const auto at = tree_.symbols.find("loop");
  const int loop_symbol = at == tree_.symbols.end() ? -1 : at->second;  // -1: never read
  Loop* loop = runtime_.heap.New<Loop>(this, node, definition, iterable, depth);
  const Value loop_value = Value::Of(static_cast<Callable*>(loop));
  // As compiled by Jinja: `else` runs unless the body came to its end once, so that it also runs
  // where every round was left by `break` or `continue`.
  bool body_ended = false;
  while (loop->Advance()) {
    const Scope scope(*this, definition);
    Hide(node->hidden);
    if (loop_symbol >= 0) Store(loop_symbol, loop_value);
    Assign(node->a, loop->current);
    const Flow flow = Execute(node->body);
    if (flow == Flow::kBreak) break;
    body_ended |= flow == Flow::kNext;
  }
  if (!body_ended && !node->otherwise.empty()) {
    const Scope scope(*this, definition);
    Hide(node->otherwise_hidden);
    return Execute(node->otherwise);
  }
  return Flow::kNext;
}

void Interpreter::ExecuteSetBlock(const Node* node, const std::string& text) {
  Value value = runtime_.String(text);
  if (node->b != nullptr) {
    filter_input_ = value;
    value = Evaluate(node->b);
  }
  Assign(node->a, value);
}

Interpreter::Flow Interpreter::ExecuteWith(const Node* node) {
  std::vector<Value> values;  // all are evaluated outside of the new scope
  values.reserve(node->defaults.size());
  for (const Node* value : node->defaults) values.push_back(Evaluate(value));
  const Scope scope(*this, frame_);
  Hide(node->hidden);
  for (std::size_t i = 0; i < values.size(); ++i) Assign(node->items[i], values[i]);
  return Execute(node->body);
}

Value Interpreter::CallMacro(const Macro& macro, Arguments& arguments) {
  const int line = runtime_.line;
  std::string text = Captured([&] {
    const Scope scope(*this, macro.closure);
    Hide(macro.node->hidden);
    BindParameters(macro, arguments);
    (void)Execute(macro.node->body);
  });
  runtime_.line = line;
  return runtime_.String(std::move(text));
}

void Interpreter::BindParameters(const Macro& macro, Arguments& arguments) {
  const Node* node = macro.node;
  const std::size_t count = node->items.size();
  const auto take_named = [&](std::string_view name) -> Value {
    for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at) {
      if (at->first != name) continue;
      Value value = std::move(at->second);
      arguments.named.erase(at);
      return value;
    }
    return {};
  };
  const auto symbol = [&](std::string_view name) {
    return tree_.symbols.find(std::string(name))->second;
  };
  const std::size_t first_default = count - node->defaults.size();
  bool caller_is_parameter = false;
  for (std::size_t i = 0; i < count; ++i) {
    const Node* parameter = node->items[i];
    caller_is_parameter |= parameter->name->text == "caller";
    Value value = i < arguments.positional.size() ? arguments.positional[i]
                                                  : take_named(parameter->name->text);
    if (value.missing() && i >= first_default) value = Evaluate(node->defaults[i - first_default]);
    if (value.missing()) value = Value::Undefined(Lack::kVariable, parameter->name);
    Store(parameter->symbol, std::move(value));
  }
  if (node->uses_caller && !caller_is_parameter) {
    Value caller = take_named("caller");
    if (caller.missing()) {
      const Value why = runtime_.String("no caller defined");
      caller = Value::Undefined(Lack::kOther, why.AsStr());
    }
    Store(symbol("caller"), std::move(caller));
  }
  if (node->uses_kwargs) {
    Dict* rest = runtime_.NewDict();
    for (const auto& [name, value] : arguments.named) {
      rest->Set(runtime_, runtime_.String(std::string(name)), value);
    }
    Store(symbol("kwargs"), Value::Of(rest));
  } else if (!arguments.named.empty()) {
    Fail("macro '{}' takes no keyword argument '{}'", macro.Name(), arguments.named[0].first);
  }
  if (node->uses_varargs) {
    List* rest = runtime_.NewList();
    for (std::size_t i = count; i < arguments.positional.size(); ++i) {
      runtime_.Append(*rest, arguments.positional[i]);
    }
    Store(symbol("varargs"), Value::Of(rest, true));
  } else if (arguments.positional.size() > count) {
    Fail("macro '{}' takes not more than {} argument(s)", macro.Name(), count);
  }
}

// ---- expressions

Value Interpreter::Evaluate(const Node* node) {
  const Runtime::Level level(runtime_);
  runtime_.Step();
  runtime_.line = node->line;
  switch (node->kind) {
    case NodeKind::kConst:
      return node->constant;
    case NodeKind::kName: {
      const Value* value = Lookup(node->symbol);
      return value == nullptr ? Value::Undefined(Lack::kVariable, node->name) : *value;
    }
    case NodeKind::kTuple:
      return EvaluateList(node, true);
    case NodeKind::kList:
      return EvaluateList(node, false);
    case NodeKind::kDict:
      return EvaluateDict(node);
    case NodeKind::kNot:
      return Value::Bool(!runtime_.Truth(Evaluate(node->a)));
    case NodeKind::kNegate:
      return runtime_.Negate(Evaluate(node->a));
    case NodeKind::kPlus:
      return runtime_.Binary(Operator::kAdd, Value::Int(0), Evaluate(node->a));
    case NodeKind::kBinary: {
      const Value left = Evaluate(node->a);
      const Value right = Evaluate(node->b);
      return runtime_.Binary(node->op, left, right);
    }
    case NodeKind::kCompare:
      return EvaluateCompare(node);
    case NodeKind::kAnd: {
      Value left = Evaluate(node->a);
      return runtime_.Truth(left) ? Evaluate(node->b) : left;
    }
    case NodeKind::kOr: {
      Value left = Evaluate(node->a);
      return runtime_.Truth(left) ? left : Evaluate(node->b);
    }
    case NodeKind::kConcat:
      return EvaluateConcat(node);
    case NodeKind::kCondition:
      if (runtime_.Truth(Evaluate(node->a))) return Evaluate(node->b);
      if (node->c != nullptr) return Evaluate(node->c);
      {
        const Value why =
            runtime_.String("the condition was false and the expression has no else part");
        return Value::Undefined(Lack::kOther, why.AsStr());
      }
    case NodeKind::kAttribute:
      return runtime_.Attribute(Evaluate(node->a), node->name);
    case NodeKind::kItem:
      return EvaluateItem(node);
    case NodeKind::kCall:
      return EvaluateCall(node, {});
    case NodeKind::kFilter:
      return EvaluateFilter(node);
    case NodeKind::kTest:
      return EvaluateTest(node);
    default:
      Fail("this expression cannot be evaluated");
  }
}

Value Interpreter::EvaluateList(const Node* node, bool tuple) {
  List* list = runtime_.NewList(node->items.size());
  for (const Node* item : node->items) runtime_.Append(*list, Evaluate(item));
  return Value::Of(list, tuple);
}

Value Interpreter::EvaluateDict(const Node* node) {
  Dict* dict = runtime_.NewDict();
  for (std::size_t i = 0; i < node->items.size(); i += 2) {
    const Value key = Evaluate(node->items[i]);
    dict->Set(runtime_, key, Evaluate(node->items[i + 1]));
  }
  return Value::Of(dict);
}

Value Interpreter::EvaluateCompare(const Node* node) {
  Value left = Evaluate(node->a);
  Value result;
  for (std::size_t i = 0; i < node->items.size(); ++i) {
    Value right = Evaluate(node->items[i]);
    result = runtime_.Compare(node->compares[i], left, right);
    if (!result.AsBool()) return result;
    left = std::move(right);
  }
  return result;
}

Value Interpreter::EvaluateConcat(const Node* node) {
  std::string text;
  for (const Node* item : node->items) {
    runtime_.AppendString(text, Evaluate(item));
    runtime_.CheckSize(text.size());
  }
  return runtime_.String(std::move(text));
}

Value Interpreter::EvaluateItem(const Node* node) {
  const Value subject = Evaluate(node->a);
  const Node* key = node->b;
  if (key->kind != NodeKind::kSlice) return runtime_.Item(subject, Evaluate(key));
  const auto part = [&](const Node* bound) { return bound == nullptr ? Value() : Evaluate(bound); };
  const Value start = part(key->a);
  const Value stop = part(key->b);
  const Value step = part(key->c);
  return runtime_.Slice(subject, start, stop, step);
}

void Interpreter::EvaluateArguments(const Node* node, Arguments& arguments) {
  arguments.positional.reserve(node->items.size());
  for (const Node* item : node->items) arguments.positional.push_back(Evaluate(item));
  for (const auto& [name, item] : node->named) {
    arguments.named.emplace_back(name->text, Evaluate(item));
  }
  // A test or filter keeps its subject in `a`; further positional arguments are in `b`, named in
  // `c`.
  if (node->b != nullptr) {
    for (const Value& item : runtime_.ToList(Evaluate(node->b))->items) {
      arguments.positional.push_back(item);
    }
  }
  if (node->c != nullptr) {
    const Value more = Evaluate(node->c);
    if (!more.Is(Kind::kDict)) Fail("argument after ** must be a mapping, not {}", TypeName(more));
    // A copy, whose keys live as long as the render: the callee may change the dict itself.
    const List* keys = runtime_.ToList(more);
    for (const Value& key : keys->items) {
      if (!key.string()) Fail("keywords must be strings");
      arguments.named.emplace_back(key.Text(), *more.AsDict().Get(key.Text()));
    }
  }
}

Value Interpreter::EvaluateCall(const Node* node, const Value& caller) {
  const bool method = node->a->kind == NodeKind::kAttribute;
  const Value callee = Evaluate(method ? node->a->a : node->a);
  Arguments arguments;
  EvaluateArguments(node, arguments);
  if (!caller.missing()) arguments.named.emplace_back("caller", caller);
  runtime_.line = node->line;
  if (method) return runtime_.CallMethod(callee, node->a->name, arguments);
  return runtime_.Call(callee, arguments);
}

Value Interpreter::EvaluateFilter(const Node* node) {
  const Value subject = node->a == nullptr ? std::move(filter_input_) : Evaluate(node->a);
  if (node->filter == nullptr) Fail("no filter named '{}'", node->name->text);
  Arguments arguments;
  EvaluateArguments(node, arguments);
  runtime_.line = node->line;
  return node->filter(runtime_, subject, arguments);
}

Value Interpreter::EvaluateTest(const Node* node) {
  const Value subject = Evaluate(node->a);
  if (node->test == nullptr) Fail("no test named '{}'", node->name->text);
  Arguments arguments;
  EvaluateArguments(node, arguments);
  runtime_.line = node->line;
  return Value::Bool(node->test(runtime_, subject, arguments));
}

}  // namespace kvasir::text::jinja
