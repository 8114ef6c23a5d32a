#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "text/jinja/functions.h"
#include "text/jinja/lexer.h"

namespace kvasir::text::jinja {

Str* Tree::Intern(std::string_view text) {
  const auto [at, inserted] = interned.try_emplace(std::string(text), nullptr);
  if (inserted) {
    strings.push_back(MakeImmortal(std::string(text)));
    at->second = strings.back().get();
  }
  return at->second;
}

int Tree::Symbol(std::string_view name) {
  const auto [at, inserted] =
      symbols.try_emplace(std::string(name), static_cast<int>(symbol_names.size()));
  if (inserted) symbol_names.push_back(Intern(name));
  return at->second;
}

namespace {

// Leaves the recursive descent; does not leave this file.
struct ParseFailure {
  std::string message;
};

using Ends = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens)
      : tokens_(std::move(tokens)), tree_(std::make_unique<Tree>()) {}

  std::unique_ptr<Tree> Run() {
    tree_->body = Body({});
    return std::move(tree_);
  }

 private:
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kNestingMax) {
        parser_.Fail(fmt::format("more than {} levels of nesting", kNestingMax));
      }
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  // ---- tokens

  [[nodiscard]] const Token& Current() const { return tokens_[at_]; }
  [[nodiscard]] const Token& Ahead() const {
    return tokens_[std::min(at_ + 1, tokens_.size() - 1)];
  }
  const Token& Take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[nodiscard]] bool AtOperator(std::string_view op) const {
    return Current().Is(TokenKind::kOperator, op);
  }
  [[nodiscard]] bool AtName(std::string_view name) const {
    return Current().Is(TokenKind::kName, name);
  }
  bool SkipOperator(std::string_view op) {
    if (!AtOperator(op)) return false;
    Take();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!AtName(name)) return false;
    Take();
    return true;
  }
  void ExpectOperator(std::string_view op) {
    if (!SkipOperator(op)) Fail(fmt::format("expected '{}', got {}", op, Describe(Current())));
  }
  void ExpectName(std::string_view name) {
    if (!SkipName(name)) Fail(fmt::format("expected '{}', got {}", name, Describe(Current())));
  }
  const Token& ExpectAnyName() {
    if (Current().kind != TokenKind::kName) {
      Fail(fmt::format("expected a name, got {}", Describe(Current())));
    }
    return Take();
  }
  void Expect(TokenKind kind, std::string_view text) {
    if (Current().kind != kind) {
      Fail(fmt::format("expected '{}', got {}", text, Describe(Current())));
    }
    Take();
  }
  [[nodiscard]] static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kData:
        return "text";
      default:
        return fmt::format("'{}'", token.text);
    }
  }
  [[noreturn]] void Fail(std::string_view what) const { FailAt(Current().line, what); }
  [[noreturn]] static void FailAt(int line, std::string_view what) {
    throw ParseFailure{fmt::format("line {}: {}", line, what)};
  }

  // ---- nodes

  Node* New(NodeKind kind, int line) {
    tree_->nodes.push_back(std::make_unique<Node>());
    Node* node = tree_->nodes.back().get();
    node->kind = kind;
    node->line = line;
    return node;
  }

  // To be called when all the children are there.
  Node* Done(Node* node) const {
    int height = 0;
    node->ForEachChild([&](const Node* child) { height = std::max(height, child->height); });
    node->height = height + 1;
    if (node->height > kHeightMax) {
      FailAt(node->line,
             fmt::format("an expression or block more than {} levels high", kHeightMax));
    }
    return node;
  }

  Node* Unary(NodeKind kind, int line, Node* a) {
    Node* node = New(kind, line);
    node->a = a;
    return Done(node);
  }

  Node* Pair(NodeKind kind, int line, Node* a, Node* b, Operator op = Operator::kAdd) {
    Node* node = New(kind, line);
    node->a = a;
    node->b = b;
    node->op = op;
    return Done(node);
  }

  Node* Constant(int line, Value value) {
    Node* node = New(NodeKind::kConst, line);
    node->constant = std::move(value);
    return node;
  }

  Node* Name(const Token& token) {
    Node* node = New(NodeKind::kName, token.line);
    node->symbol = tree_->Symbol(token.text);
    node->name = tree_->Intern(token.text);
    return node;
  }

  // ---- statements

  // Statements up to a tag that is one of `ends` (which stays), or to the end of the template.
  std::vector<Node*> Body(Ends ends) {
    const Nesting nesting(*this);
    std::vector<Node*> body;
    while (true) {
      const Token& token = Current();
      switch (token.kind) {
        case TokenKind::kEnd:
          if (ends.size() > 0) {
            Fail(fmt::format("the template ends where '{}' is expected", *(ends.end() - 1)));
          }
          return body;
        case TokenKind::kData: {
          Node* node = New(NodeKind::kText, token.line);
          tree_->strings.push_back(MakeImmortal(token.text));
          node->constant = Value::String(tree_->strings.back().get());
          body.push_back(node);
          Take();
          break;
        }
        case TokenKind::kVariableBegin: {
          const int line = Take().line;
          body.push_back(Unary(NodeKind::kPrint, line, Tuple(true, {})));
          Expect(TokenKind::kVariableEnd, "}}");
          break;
        }
        case TokenKind::kBlockBegin: {
          Take();
          if (Current().kind != TokenKind::kName) {
            Fail(fmt::format("expected the name of a tag, got {}", Describe(Current())));
          }
          const std::string& tag = Current().text;
          if (std::find(ends.begin(), ends.end(), tag) != ends.end()) return body;
          if (tag == "print") {
            PrintTag(body);
          } else {
            body.push_back(Statement(ends));
          }
          Expect(TokenKind::kBlockEnd, "%}");
          break;
        }
        default:
          Fail(fmt::format("unexpected {}", Describe(token)));
      }
    }
  }

  void PrintTag(std::vector<Node*>& body) {
    Take();
    for (bool first = true; Current().kind != TokenKind::kBlockEnd; first = false) {
      if (!first) ExpectOperator(",");
      const int line = Current().line;
      body.push_back(Unary(NodeKind::kPrint, line, Expression()));
    }
  }

  // The end of a tag that has a body, and the body.
  std::vector<Node*> Block(Ends ends) {
    SkipOperator(":");
    Expect(TokenKind::kBlockEnd, "%}");
    return Body(ends);
  }

  std::vector<Node*> BlockUntil(std::string_view end) {
    std::vector<Node*> body = Block({end});
    Take();
    return body;
  }

  Node* Statement(Ends ends) {
    const Token& token = Take();
    const std::string& tag = token.text;
    if (tag == "if") return If(token.line);
    if (tag == "for") return For(token.line);
    if (tag == "set") return Set(token.line);
    if (tag == "macro") return Macro(token.line);
    if (tag == "call") return CallBlock(token.line);
    if (tag == "filter") return FilterBlock(token.line);
    if (tag == "with") return With(token.line);
    if (tag == "generation") {
      Node* node = New(NodeKind::kScope, token.line);
      node->body = BlockUntil("endgeneration");
      return Done(node);
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) FailAt(token.line, fmt::format("'{}' outside of a loop", tag));
      return New(tag == "break" ? NodeKind::kBreak : NodeKind::kContinue, token.line);
    }
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
      Node* node = New(NodeKind::kRefused, token.line);
      node->name =
          tree_->Intern(fmt::format("'{}' needs other templates, and there are none", tag));
      while (Current().kind != TokenKind::kBlockEnd && Current().kind != TokenKind::kEnd) Take();
      return node;
    }
    if (ends.size() > 0) {
      FailAt(token.line, fmt::format("unknown tag '{}' (the block that is open ends with '{}')",
                                     tag, *(ends.end() - 1)));
    }
    FailAt(token.line, fmt::format("unknown tag '{}'", tag));
  }

  Node* If(int line) {
    Node* node = New(NodeKind::kIf, line);
    Node* branch = node;
    while (true) {
      branch->a = Tuple(false, {});
      branch->body = Block({"elif", "else", "endif"});
      const Token& token = Take();
      if (token.text == "elif") {
        if (branch != node) node->elifs.push_back(Done(branch));
        branch = New(NodeKind::kIf, token.line);
        continue;
      }
      if (branch != node) node->elifs.push_back(Done(branch));
      if (token.text == "else") node->otherwise = BlockUntil("endif");
      return Done(node);
    }
  }

  Node* For(int line) {
    Node* node = New(NodeKind::kFor, line);
    node->a = Target(false, {"in"});
    ExpectName("in");
    node->b = Tuple(false, {"recursive"});
    if (SkipName("if")) node->c = Expression();
    node->flag = SkipName("recursive");
    ++loops_;
    node->body = Block({"else", "endfor"});
    --loops_;
    if (Take().text == "else") node->otherwise = BlockUntil("endfor");
    return Done(node);
  }

  Node* Set(int line) {
    Node* target = Target(true, {});
    if (SkipOperator("=")) return Pair(NodeKind::kSet, line, target, Tuple(true, {}));
    Node* node = New(NodeKind::kSetBlock, line);
    node->a = target;
    node->b = Filters(nullptr, false);
    node->body = BlockUntil("endset");
    return Done(node);
  }

  void Signature(Node* node) {
    ExpectOperator("(");
    while (!AtOperator(")")) {
      if (!node->items.empty()) ExpectOperator(",");
      node->items.push_back(TargetName());
      if (SkipOperator("=")) {
        node->defaults.push_back(Expression());
      } else if (!node->defaults.empty()) {
        Fail("an argument without a default follows one with a default");
      }
    }
    Take();
  }

  // The body of what is called: loops outside of it cannot be left from inside.
  std::vector<Node*> FunctionBody(std::string_view end) {
    const int loops = loops_;
    loops_ = 0;
    std::vector<Node*> body = BlockUntil(end);
    loops_ = loops;
    return body;
  }

  // A macro takes further arguments only where its body reads them.
  void NoteSpecialNames(Node* function) {
    const std::function<void(const Node*)> visit = [&](const Node* node) {
      if (node->kind == NodeKind::kName) {
        function->uses_caller |= node->name->text == "caller";
        function->uses_kwargs |= node->name->text == "kwargs";
        function->uses_varargs |= node->name->text == "varargs";
      }
      node->ForEachChild(visit);
    };
    for (const Node* node : function->body) visit(node);
    for (const Node* node : function->defaults) visit(node);
  }

  Node* Macro(int line) {
    Node* node = New(NodeKind::kMacro, line);
    const Node* name = TargetName();
    node->symbol = name->symbol;
    node->name = name->name;
    Signature(node);
    node->body = FunctionBody("endmacro");
    NoteSpecialNames(node);
    return Done(node);
  }

  Node* CallBlock(int line) {
    Node* node = New(NodeKind::kCallBlock, line);
    if (AtOperator("(")) Signature(node);
    node->a = Expression();
    if (node->a->kind != NodeKind::kCall) FailAt(line, "expected a call after 'call'");
    node->body = FunctionBody("endcall");
    NoteSpecialNames(node);
    return Done(node);
  }

  Node* FilterBlock(int line) {
    Node* node = New(NodeKind::kFilterBlock, line);
    node->a = Filters(nullptr, true);
    node->body = BlockUntil("endfilter");
    return Done(node);
  }

  Node* With(int line) {
    Node* node = New(NodeKind::kWith, line);
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!node->items.empty()) ExpectOperator(",");
      node->items.push_back(Target(false, {}));
      ExpectOperator("=");
      node->defaults.push_back(Expression());
    }
    node->body = BlockUntil("endwith");
    return Done(node);
  }

  // ---- targets of assignments

  Node* TargetName() {
    const Token& token = ExpectAnyName();
    return Name(token);
  }

  Node* Target(bool with_namespace, Ends ends) {
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
    if (items.empty())
      Fail(fmt::format("expected a name to assign to, got {}", Describe(Current())));
    if (!tuple) return items[0];
    Node* node = New(NodeKind::kTuple, line);
    node->items = std::move(items);
    return Done(node);
  }

  Node* TargetItem(bool with_namespace) {
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

  [[nodiscard]] bool AtTupleEnd(Ends ends) const {
    const Token& token = Current();
    if (token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
        AtOperator(")")) {
      return true;
    }
    return token.kind == TokenKind::kName &&
           std::find(ends.begin(), ends.end(), token.text) != ends.end();
  }

  // One expression, or several with commas: a tuple.
  Node* Tuple(bool with_condition, Ends ends, bool parentheses = false) {
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

  Node* Expression() {
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

  Node* Or() {
    Node* left = And();
    while (AtName("or")) {
      const int line = Take().line;
      left = Pair(NodeKind::kOr, line, left, And());
    }
    return left;
  }

  Node* And() {
    Node* left = Not();
    while (AtName("and")) {
      const int line = Take().line;
      left = Pair(NodeKind::kAnd, line, left, Not());
    }
    return left;
  }

  Node* Not() {
    if (!AtName("not")) return Compare();
    const Nesting nesting(*this);
    const int line = Take().line;
    return Unary(NodeKind::kNot, line, Not());
  }

  std::optional<Operator> TakeComparison() {
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

  Node* Compare() {
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

  Node* Sum() {
    Node* left = Concat();
    while (AtOperator("+") || AtOperator("-")) {
      const Token& token = Take();
      left = Pair(NodeKind::kBinary, token.line, left, Concat(),
                  token.text == "+" ? Operator::kAdd : Operator::kSubtract);
    }
    return left;
  }

  Node* Concat() {
    Node* first = Product();
    if (!AtOperator("~")) return first;
    Node* node = New(NodeKind::kConcat, first->line);
    node->items.push_back(first);
    while (SkipOperator("~")) node->items.push_back(Product());
    return Done(node);
  }

  Node* Product() {
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

  Node* Power() {
    Node* left = UnaryExpression(true);
    while (AtOperator("**")) {
      const int line = Take().line;
      left = Pair(NodeKind::kBinary, line, left, UnaryExpression(true), Operator::kPower);
    }
    return left;
  }

  Node* UnaryExpression(bool with_filter) {
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

  Node* Primary() {
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

  Node* ListLiteral() {
    Node* node = New(NodeKind::kList, Take().line);
    while (!AtOperator("]")) {
      if (!node->items.empty()) ExpectOperator(",");
      if (AtOperator("]")) break;
      node->items.push_back(Expression());
    }
    Take();
    return Done(node);
  }

  Node* DictLiteral() {
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

  Node* Postfix(Node* node) {
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

  Node* FiltersAndTests(Node* node) {
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

  Node* Subscript(Node* subject) {
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

  Node* SubscriptItem() {
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
  void CallArguments(Node* node) {
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

  Node* Call(Node* callee) {
    Node* node = New(NodeKind::kCall, Current().line);
    node->a = callee;
    CallArguments(node);
    return Done(node);
  }

  std::string DottedName() {
    std::string name = ExpectAnyName().text;
    while (SkipOperator(".")) name += "." + ExpectAnyName().text;
    return name;
  }

  // Filters behind `subject`; `inline_first`: the first one has no "|".
  Node* Filters(Node* subject, bool inline_first) {
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

  Node* Test(Node* subject) {
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

  [[nodiscard]] bool BeginsTestArgument() const {
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

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
  std::unique_ptr<Tree> tree_;
};

// Jinja looks filters and tests up when it compiles, but in branches (of `if` and of `a if b else
// c`) only when they are reached. A scope inside of a branch (a loop, a macro) is strict again.
void CheckNames(const Node* node, bool lenient) {
  if (!lenient && ((node->kind == NodeKind::kFilter && node->filter == nullptr) ||
                   (node->kind == NodeKind::kTest && node->test == nullptr))) {
    throw ParseFailure{fmt::format("line {}: no {} named '{}'", node->line,
                                   node->kind == NodeKind::kFilter ? "filter" : "test",
                                   node->name->text)};
  }
  const auto each = [](const std::vector<Node*>& nodes, bool value) {
    for (const Node* child : nodes) CheckNames(child, value);
  };
  switch (node->kind) {
    case NodeKind::kIf:
    case NodeKind::kCondition:
      node->ForEachChild([](const Node* child) { CheckNames(child, true); });
      return;
    case NodeKind::kFor:
      CheckNames(node->b, lenient);
      if (node->c != nullptr) CheckNames(node->c, false);
      each(node->body, false);
      each(node->otherwise, false);
      return;
    case NodeKind::kWith:
      each(node->defaults, lenient);
      each(node->body, false);
      return;
    case NodeKind::kCallBlock:
      CheckNames(node->a, lenient);
      each(node->defaults, false);
      each(node->body, false);
      return;
    case NodeKind::kMacro:
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock:
    case NodeKind::kScope:
      lenient = false;
      break;
    default:
      break;
  }
  node->ForEachChild([&](const Node* child) { CheckNames(child, lenient); });
}

}  // namespace

Result<std::unique_ptr<Tree>> ParseTemplate(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "the template has {} bytes; at most {} are allowed", source.size(),
                     kSourceBytesMax);
  }
  KVASIR_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  try {
    std::unique_ptr<Tree> tree = Parser(std::move(tokens)).Run();
    for (const Node* node : tree->body) CheckNames(node, false);
    return tree;
  } catch (const ParseFailure& failure) {
    return MakeError(ErrorCode::kInvalidArgument, "{}", failure.message);
  }
}

}  // namespace kvasir::text::jinja
