// Tokens → expressions and the targets of assignments.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/parser_base.h"

namespace kvasir::text::jinja {

class ExpressionParser : protected ParserBase {
 protected:
  using ParserBase::ParserBase;

  Node* TargetName();
  /// What `set` and `for` assign to. `with_namespace`: also ns.attribute.
  Node* Target(bool with_namespace, Ends ends);
  /// One expression, or several with commas: a tuple. It ends with its tag or at one of `ends`.
  Node* Tuple(bool with_condition, Ends ends, bool parentheses = false);
  Node* Expression();
  /// Filters behind `subject`; `inline_first`: the first one has no "|".
  Node* Filters(Node* subject, bool inline_first);

 private:
  Node* TargetItem(bool with_namespace);
  [[nodiscard]] bool AtTupleEnd(Ends ends) const;
  Node* Or();
  Node* And();
  Node* Not();
  std::optional<Operator> TakeComparison();
  Node* Compare();
  Node* Sum();
  Node* Concat();
  Node* Product();
  Node* Power();
  Node* UnaryExpression(bool with_filter);
  Node* Primary();
  Node* ListLiteral();
  Node* DictLiteral();
  Node* Postfix(Node* node);
  Node* FiltersAndTests(Node* node);
  Node* Subscript(Node* subject);
  Node* SubscriptItem();
  void CallArguments(Node* node);
  Node* Call(Node* callee);
  std::string DottedName();
  Node* Test(Node* subject);
  [[nodiscard]] bool BeginsTestArgument() const;
};

}  // namespace kvasir::text::jinja
