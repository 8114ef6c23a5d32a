#include "text/jinja/functions.h"

#include <unordered_map>

namespace kvasir::text::jinja {
namespace {

using Methods = std::unordered_map<std::string_view, MethodFunction>;

Methods Indexed(Table<NamedMethod> table) {
  Methods methods;
  for (std::size_t i = 0; i < table.size; ++i) {
    methods.emplace(table.data[i].name, table.data[i].function);
  }
  return methods;
}

}  // namespace

FilterFunction FindFilter(std::string_view name) {
  static const auto* const kFilters = [] {
    auto* filters = new std::unordered_map<std::string_view, FilterFunction>();
    for (const Table<NamedFilter> table : {TextFilters(), SequenceFilters(), SelectFilters()}) {
      for (std::size_t i = 0; i < table.size; ++i) {
        filters->emplace(table.data[i].name, table.data[i].function);
      }
    }
    return filters;
  }();
  const auto at = kFilters->find(name);
  return at == kFilters->end() ? nullptr : at->second;
}

MethodFunction FindMethod(Kind kind, std::string_view name) {
  static const auto* const kString = new Methods(Indexed(StringMethods()));
  static const auto* const kList = new Methods(Indexed(ListMethods()));
  static const auto* const kTuple = new Methods(Indexed(TupleMethods()));
  static const auto* const kDict = new Methods(Indexed(DictMethods()));
  const Methods* methods = kind == Kind::kString  ? kString
                           : kind == Kind::kList  ? kList
                           : kind == Kind::kTuple ? kTuple
                                                  : kDict;
  const auto at = methods->find(name);
  return at == methods->end() ? nullptr : at->second;
}

}  // namespace kvasir::text::jinja
