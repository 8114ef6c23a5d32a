// What the parsers of statements and expressions share: the tokens, and the making of nodes.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace kvasir::text::jinja {

/// Leaves the recursive descent; does not leave ParseTemplate.
struct ParseFailure {
  std::string message;
};

/// Words that end a list of statements or a tuple.
using Ends = std::initializer_list<std::string_view>;

class ParserBase {
 protected:
  explicit ParserBase(std::vector<Token> tokens)
      : tree_(std::make_unique<Tree>()), tokens_(std::move(tokens)) {}

  class Nesting {
   public:
    explicit Nesting(ParserBase& parser) : parser_(parser) {
      if (++parser_.nesting_ > kNestingMax) {
        parser_.Fail(fmt::format("more than {} levels of nesting", kNestingMax));
      }
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ParserBase& parser_;
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

  std::unique_ptr<Tree> tree_;

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace kvasir::text::jinja
