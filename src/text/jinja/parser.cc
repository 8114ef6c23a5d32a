#include "text/jinja/parser.h"

#include <algorithm>
#include <functional>

#include "text/jinja/expression_parser.h"
#include "text/jinja/unicode.h"

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
class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  std::unique_ptr<Tree> Run() {
    tree_->body = Body({});
    return std::move(tree_);
  }

 private:
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

  int loops_ = 0;  ///< loops that are open here
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
    return MakeError(ErrorCode::kInvalidArgument, "{}", OneLine(failure.message));
  }
}

}  // namespace kvasir::text::jinja
