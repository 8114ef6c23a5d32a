// Runs a syntax tree.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace kvasir::text::jinja {

/// The variables of one scope. Frames are reused; one that a macro has captured is not.
struct Frame {
  Frame* parent = nullptr;  ///< null: the template's own variables
  bool captured = false;
  std::vector<std::pair<int, Value>> variables;
};

class Interpreter {
 public:
  Interpreter(const Tree& tree, const RenderOptions& options);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Each throws RenderFailure.

  /// Sets the global functions; variables of the same names, set later, hide them.
  void AddGlobals();
  /// Whether the template may read the variable from its context.
  [[nodiscard]] bool Reads(const std::string& name) const;
  /// Sets a variable of the context that the template reads.
  void SetVariable(const std::string& name, Value value);
  /// The whole output.
  std::string Run();

  [[nodiscard]] Runtime& runtime() { return runtime_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class Scope;
  struct Macro;
  struct Loop;
  struct LoopMethod;

  // ---- variables
  [[nodiscard]] Frame* NewFrame(Frame* parent);
  void Release(Frame* frame);
  static void Capture(Frame* frame);
  [[nodiscard]] const Value* Lookup(int symbol) const;
  void Store(int symbol, Value value);
  void Hide(const std::vector<int>& symbols);
  void Assign(const Node* target, const Value& value);
  void AssignNamespace(const Node* target, const Value& value);

  // ---- statements
  Flow Execute(const std::vector<Node*>& body);
  Flow Execute(const Node* node);
  Flow ExecuteIf(const Node* node);
  Flow ExecuteFor(const Node* node);
  void ExecuteSetBlock(const Node* node, const std::string& text);
  Flow ExecuteWith(const Node* node);
  Flow RunLoop(const Node* node, Frame* definition, const Value& iterable, int depth);
  [[nodiscard]] Value CallMacro(const Macro& macro, Arguments& arguments);
  void BindParameters(const Macro& macro, Arguments& arguments);
  void Emit(std::string_view text);
  void EmitValue(const Value& value);
  /// Runs `action` with an output of its own, and gives that.
  template <typename Action>
  std::string Captured(const Action& action);

  // ---- expressions
  [[nodiscard]] Value Evaluate(const Node* node);
  [[nodiscard]] Value EvaluateList(const Node* node, bool tuple);
  [[nodiscard]] Value EvaluateDict(const Node* node);
  [[nodiscard]] Value EvaluateCompare(const Node* node);
  [[nodiscard]] Value EvaluateConcat(const Node* node);
  [[nodiscard]] Value EvaluateItem(const Node* node);
  [[nodiscard]] Value EvaluateCall(const Node* node, const Value& caller);
  [[nodiscard]] Value EvaluateFilter(const Node* node);
  [[nodiscard]] Value EvaluateTest(const Node* node);
  void EvaluateArguments(const Node* node, Arguments& arguments);

  const Tree& tree_;
  Runtime runtime_;
  std::vector<Value> globals_;  ///< by symbol: the context, globals and sets at the top
  std::deque<Frame> frames_;
  std::vector<Frame*> free_frames_;
  Frame* frame_ = nullptr;  ///< the innermost; null at the top of the template
  std::string output_;
  std::string* out_ = &output_;
  Value filter_input_;  ///< the text that a filter or set block gives to its filters
};

}  // namespace kvasir::text::jinja
