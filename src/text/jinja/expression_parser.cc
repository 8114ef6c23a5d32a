#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "text/jinja/functions.h"

namespace kvasir::text::jinja {

// ---- targets of assignments

Node* ExpressionParser::TargetName() {
  const Token& token = ExpectAnyName();
  return Name(token);
}

Node* ExpressionParser::Target(bool with_namespace, Ends ends) {
  const int line = Current().line;
  std::vector<Node*> items;
  bool tuple = false;
  while (true) {
    if (!items.empty()) ExpectOperator(",");
    if (AtTupleEnd(ends) || AtOperator("=")) break;
    items.push_back(TargetItem(with_namespace));
    if (!AtOperator(",")) break;
    tuple = true;
  }
  if (items.empty()) Fail(fmt::format("expected a name to assign to, got {}", Describe(Current())));
  if (!tuple) return items[0];
  Node* node = New(NodeKind::kTuple, line);
  node->items = std::move(items);
  return Done(node);
}

Node* ExpressionParser::TargetItem(bool with_namespace) {
  const Nesting nesting(*this);
  if (SkipOperator("(")) {
    Node* node = Target(with_namespace, {});
    ExpectOperator(")");
    return node;
  }
  const Token& token = ExpectAnyName();
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (token.text == word) FailAt(token.line, fmt::format("can't assign to '{}'", word));
  }
  if (!with_namespace || !AtOperator(".")) return Name(token);
  Take();
  Node* node = New(NodeKind::kNamespaceRef, token.line);
  node->symbol = tree_->Symbol(token.text);
  node->a = Name(token);
  node->name = tree_->Intern(ExpectAnyName().text);
  return Done(node);
}

// ---- expressions

bool ExpressionParser::AtTupleEnd(Ends ends) const {
  const Token& token = Current();
  if (token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
      AtOperator(")")) {
    return true;
  }
  return token.kind == TokenKind::kName &&
         std::find(ends.begin(), ends.end(), token.text) != ends.end();
}

// One expression, or several with commas: a tuple.
Node* ExpressionParser::Tuple(bool with_condition, Ends ends, bool parentheses) {
  const int line = Current().line;
  std::vector<Node*> items;
  bool tuple = false;
  while (true) {
    if (!items.empty()) ExpectOperator(",");
    if (AtTupleEnd(ends)) break;
    items.push_back(with_condition ? Expression() : Or());
    if (!AtOperator(",")) break;
    tuple = true;
  }
  if (!tuple && !items.empty()) return items[0];
  if (!tuple && !parentheses) {
    Fail(fmt::format("expected an expression, got {}", Describe(Current())));
  }
  Node* node = New(NodeKind::kTuple, line);
  node->items = std::move(items);
  return Done(node);
}

Node* ExpressionParser::Expression() {
  const Nesting nesting(*this);
  Node* value = Or();
  while (AtName("if")) {
    Node* node = New(NodeKind::kCondition, Take().line);
    node->b = value;
    node->a = Or();
    if (SkipName("else")) node->c = Expression();
    value = Done(node);
  }
  return value;
}

Node* ExpressionParser::Or() {
  Node* left = And();
  while (AtName("or")) {
    const int line = Take().line;
    left = Pair(NodeKind::kOr, line, left, And());
  }
  return left;
}

Node* ExpressionParser::And() {
  Node* left = Not();
  while (AtName("and")) {
    const int line = Take().line;
    left = Pair(NodeKind::kAnd, line, left, Not());
  }
  return left;
}

Node* ExpressionParser::Not() {
  if (!AtName("not")) return Compare();
  const Nesting nesting(*this);
  const int line = Take().line;
  return Unary(NodeKind::kNot, line, Not());
}

std::optional<Operator> ExpressionParser::TakeComparison() {
  static constexpr std::pair<std::string_view, Operator> kComparisons[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  for (const auto& [text, op] : kComparisons) {
    if (SkipOperator(text)) return op;
  }
  if (SkipName("in")) return Operator::kIn;
  if (AtName("not") && Ahead().Is(TokenKind::kName, "in")) {
    Take();
    Take();
    return Operator::kNotIn;
  }
  return std::nullopt;
}

Node* ExpressionParser::Compare() {
  Node* first = Sum();
  std::optional<Operator> op = TakeComparison();
  if (!op) return first;
  Node* node = New(NodeKind::kCompare, first->line);
  node->a = first;
  for (; op; op = TakeComparison()) {
    node->compares.push_back(*op);
    node->items.push_back(Sum());
  }
  return Done(node);
}

Node* ExpressionParser::Sum() {
  Node* left = Concat();
  while (AtOperator("+") || AtOperator("-")) {
    const Token& token = Take();
    left = Pair(NodeKind::kBinary, token.line, left, Concat(),
                token.text == "+" ? Operator::kAdd : Operator::kSubtract);
  }
  return left;
}

Node* ExpressionParser::Concat() {
  Node* first = Product();
  if (!AtOperator("~")) return first;
  Node* node = New(NodeKind::kConcat, first->line);
  node->items.push_back(first);
  while (SkipOperator("~")) node->items.push_back(Product());
  return Done(node);
}

Node* ExpressionParser::Product() {
  static constexpr std::pair<std::string_view, Operator> kProducts[] = {
      {"*", Operator::kMultiply},
      {"/", Operator::kDivide},
      {"//", Operator::kFloorDivide},
      {"%", Operator::kModulo}};
  Node* left = Power();
  while (true) {
    const auto* at = std::find_if(std::begin(kProducts), std::end(kProducts),
                                  [&](const auto& p) { return AtOperator(p.first); });
    if (at == std::end(kProducts)) return left;
    const int line = Take().line;
    left = Pair(NodeKind::kBinary, line, left, Power(), at->second);
  }
}

Node* ExpressionParser::Power() {
  Node* left = UnaryExpression(true);
  while (AtOperator("**")) {
    const int line = Take().line;
    left = Pair(NodeKind::kBinary, line, left, UnaryExpression(true), Operator::kPower);
  }
  return left;
}

Node* ExpressionParser::UnaryExpression(bool with_filter) {
  const Nesting nesting(*this);
  Node* node = nullptr;
  if (AtOperator("-") || AtOperator("+")) {
    const Token& token = Take();
    node = Unary(token.text == "-" ? NodeKind::kNegate : NodeKind::kPlus, token.line,
                 UnaryExpression(false));
  } else {
    node = Primary();
  }
  node = Postfix(node);
  return with_filter ? FiltersAndTests(node) : node;
}

Node* ExpressionParser::Primary() {
  const Token& token = Current();
  switch (token.kind) {
    case TokenKind::kName:
      Take();
      if (token.text == "true" || token.text == "True") {
        return Constant(token.line, Value::Bool(true));
      }
      if (token.text == "false" || token.text == "False") {
        return Constant(token.line, Value::Bool(false));
      }
      if (token.text == "none" || token.text == "None") {
        return Constant(token.line, Value::None());
      }
      return Name(token);
    case TokenKind::kString: {
      std::string text = Take().text;
      while (Current().kind == TokenKind::kString) text += Take().text;
      return Constant(token.line, Value::String(tree_->Intern(text)));
    }
    case TokenKind::kInteger:
      return Constant(token.line, Value::Int(Take().integer));
    case TokenKind::kFloat:
      return Constant(token.line, Value::Float(Take().number));
    default:
      break;
  }
  if (SkipOperator("(")) {
    Node* node = Tuple(true, {}, true);
    ExpectOperator(")");
    return node;
  }
  if (AtOperator("[")) return ListLiteral();
  if (AtOperator("{")) return DictLiteral();
  Fail(fmt::format("unexpected {}", Describe(token)));
}

Node* ExpressionParser::ListLiteral() {
  Node* node = New(NodeKind::kList, Take().line);
  while (!AtOperator("]")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (AtOperator("]")) break;
    node->items.push_back(Expression());
  }
  Take();
  return Done(node);
}

Node* ExpressionParser::DictLiteral() {
  Node* node = New(NodeKind::kDict, Take().line);
  while (!AtOperator("}")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (AtOperator("}")) break;
    node->items.push_back(Expression());
    ExpectOperator(":");
    node->items.push_back(Expression());
  }
  Take();
  return Done(node);
}

Node* ExpressionParser::Postfix(Node* node) {
  while (true) {
    if (AtOperator(".") || AtOperator("[")) {
      node = Subscript(node);
    } else if (AtOperator("(")) {
      node = Call(node);
    } else {
      return node;
    }
  }
}

Node* ExpressionParser::FiltersAndTests(Node* node) {
  while (true) {
    if (AtOperator("|")) {
      node = Filters(node, false);
    } else if (AtName("is")) {
      node = Test(node);
    } else if (AtOperator("(")) {
      node = Call(node);
    } else {
      return node;
    }
  }
}

Node* ExpressionParser::Subscript(Node* subject) {
  const Token& token = Take();
  if (token.text == ".") {
    const Token& attribute = Take();
    if (attribute.kind == TokenKind::kName) {
      Node* node = New(NodeKind::kAttribute, token.line);
      node->a = subject;
      node->name = tree_->Intern(attribute.text);
      return Done(node);
    }
    if (attribute.kind != TokenKind::kInteger) {
      FailAt(attribute.line, "expected a name or a number after '.'");
    }
    return Pair(NodeKind::kItem, token.line, subject,
                Constant(attribute.line, Value::Int(attribute.integer)));
  }
  std::vector<Node*> items;
  while (!AtOperator("]")) {
    if (!items.empty()) ExpectOperator(",");
    items.push_back(SubscriptItem());
  }
  Take();
  if (items.size() == 1) return Pair(NodeKind::kItem, token.line, subject, items[0]);
  Node* tuple = New(NodeKind::kTuple, token.line);
  tuple->items = std::move(items);
  for (const Node* item : tuple->items) {
    if (item->kind == NodeKind::kSlice) FailAt(token.line, "a slice cannot be part of a tuple");
  }
  return Pair(NodeKind::kItem, token.line, subject, Done(tuple));
}

Node* ExpressionParser::SubscriptItem() {
  const int line = Current().line;
  Node* start = AtOperator(":") ? nullptr : Expression();
  if (!AtOperator(":")) return start;
  Take();
  Node* node = New(NodeKind::kSlice, line);
  node->a = start;
  const auto at_end = [&] { return AtOperator("]") || AtOperator(","); };
  if (!AtOperator(":") && !at_end()) node->b = Expression();
  if (SkipOperator(":") && !at_end()) node->c = Expression();
  return Done(node);
}

// "(...)" into items, named, b (after *) and c (after **).
void ExpressionParser::CallArguments(Node* node) {
  const int line = Current().line;
  const auto ensure = [&](bool ok) {
    if (!ok) FailAt(line, "wrong order of the arguments of a call");
  };
  ExpectOperator("(");
  for (bool first = true; !AtOperator(")"); first = false) {
    if (!first) {
      ExpectOperator(",");
      if (AtOperator(")")) break;
    }
    if (SkipOperator("*")) {
      ensure(node->b == nullptr && node->c == nullptr);
      node->b = Expression();
    } else if (SkipOperator("**")) {
      ensure(node->c == nullptr);
      node->c = Expression();
    } else if (Current().kind == TokenKind::kName && Ahead().Is(TokenKind::kOperator, "=")) {
      ensure(node->c == nullptr);
      Str* key = tree_->Intern(Take().text);
      Take();
      node->named.emplace_back(key, Expression());
    } else {
      ensure(node->b == nullptr && node->c == nullptr && node->named.empty());
      node->items.push_back(Expression());
    }
  }
  Take();
}

Node* ExpressionParser::Call(Node* callee) {
  Node* node = New(NodeKind::kCall, Current().line);
  node->a = callee;
  CallArguments(node);
  return Done(node);
}

std::string ExpressionParser::DottedName() {
  std::string name = ExpectAnyName().text;
  while (SkipOperator(".")) name += "." + ExpectAnyName().text;
  return name;
}

// Filters behind `subject`; `inline_first`: the first one has no "|".
Node* ExpressionParser::Filters(Node* subject, bool inline_first) {
  while (inline_first || AtOperator("|")) {
    if (!inline_first) Take();
    inline_first = false;
    Node* node = New(NodeKind::kFilter, Current().line);
    node->a = subject;
    node->name = tree_->Intern(DottedName());
    node->filter = FindFilter(node->name->text);
    if (AtOperator("(")) CallArguments(node);
    subject = Done(node);
  }
  return subject;
}

Node* ExpressionParser::Test(Node* subject) {
  const int line = Take().line;
  const bool negated = SkipName("not");
  Node* node = New(NodeKind::kTest, line);
  node->a = subject;
  node->name = tree_->Intern(DottedName());
  node->test = FindTest(node->name->text);
  if (AtOperator("(")) {
    CallArguments(node);
  } else if (BeginsTestArgument()) {
    if (AtName("is")) Fail("tests cannot be chained with 'is'");
    node->items.push_back(Postfix(Primary()));
  }
  Done(node);
  return negated ? Unary(NodeKind::kNot, line, node) : node;
}

bool ExpressionParser::BeginsTestArgument() const {
  switch (Current().kind) {
    case TokenKind::kName:
      return !AtName("else") && !AtName("or") && !AtName("and");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return AtOperator("[") || AtOperator("{");
  }
}

}  // namespace kvasir::text::jinja
