// What the goldens do not cover: limits, the sandbox, error messages, and hostile templates.
#include "text/jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "support/data.h"

namespace kvasir::text::jinja {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Result<std::string> Render(const std::string& source, const Json& context = Json::object(),
                           const RenderLimits& limits = {}) {
  auto parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.error();
  RenderOptions options;
  options.limits = limits;
  return (*parsed)->Render(context, options);
}

std::string Rendered(const std::string& source, const Json& context = Json::object()) {
  Result<std::string> result = Render(source, context);
  return result.ok() ? *result : "error: " + result.error().message;
}

std::string ErrorOf(const std::string& source, const Json& context = Json::object()) {
  const Result<std::string> result = Render(source, context);
  return result.ok() ? "rendered: " + *result : result.error().message;
}

std::string Repeat(const std::string& text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Jinja, RaiseExceptionKeepsItsExactMessage) {
  const auto raised = Render("{% if true %}\n{{ raise_exception('no: ' ~ [1]) }}{% endif %}");
  ASSERT_FALSE(raised.ok());
  EXPECT_EQ(raised.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(raised.error().message, "no: [1]");
  const auto failed =
      Render("a\n{{ messages[0].content + 1 }}", {{"messages", {{{"content", "x"}}}}});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(failed.error().message, "line 2: can only concatenate str (not \"int\") to str");
}

TEST(Jinja, SyntaxErrorsNameTheLine) {
  EXPECT_EQ(ErrorOf("a\n\n{% if x %}"), "line 3: the template ends where 'endif' is expected");
  EXPECT_THAT(ErrorOf("{{ 1 + }}"), HasSubstr("line 1: unexpected '}}'"));
  EXPECT_THAT(ErrorOf("{% foo %}"), HasSubstr("unknown tag 'foo'"));
  EXPECT_THAT(ErrorOf("\n{{ x | nope }}"), HasSubstr("line 2: no filter named 'nope'"));
  EXPECT_THAT(ErrorOf("{% break %}"), HasSubstr("outside of a loop"));
  EXPECT_THAT(ErrorOf("{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}"),
              HasSubstr("outside of a loop"));
  EXPECT_THAT(ErrorOf("{{ 'a"), HasSubstr("a string has no end"));
  EXPECT_THAT(ErrorOf("{# x"), HasSubstr("no end"));
  EXPECT_THAT(ErrorOf("{{ (1] }}"), HasSubstr("unexpected ']', expected ')'"));
  EXPECT_THAT(ErrorOf("\xff"), HasSubstr("UTF-8"));
}

TEST(Jinja, AnUnknownFilterMattersWhereItIsReached) {
  EXPECT_EQ(Rendered("{% if false %}{{ 1 | nope }}{% endif %}{{ 2 if true else 3|nope }}"), "2");
  EXPECT_THAT(ErrorOf("{% if true %}{{ 1 | nope }}{% endif %}"), HasSubstr("no filter named"));
  EXPECT_THAT(ErrorOf("{% if false %}{% for x in y %}{{ 1 | nope }}{% endfor %}{% endif %}"),
              HasSubstr("no filter named"));
}

TEST(Jinja, NestingIsLimitedInTheSource) {
  const std::pair<std::string, std::string> pairs[] = {
      {"(", ")"},   {"[", "]"},  {"{1:", "}"}, {"-", ""},
      {"not ", ""}, {"a[", "]"}, {"f(", ")"},  {"1 if 1 else ", ""}};
  for (const auto& [open, close] : pairs) {
    EXPECT_THAT(ErrorOf("{{ " + Repeat(open, 10'000) + "1" + Repeat(close, 10'000) + " }}"),
                HasSubstr("levels of nesting"))
        << open;
  }
  EXPECT_THAT(ErrorOf(Repeat("{% if a %}", 10'000)), HasSubstr("levels of nesting"));
  EXPECT_THAT(ErrorOf("{{ 1" + Repeat("+1", 100'000) + " }}"), HasSubstr("levels high"));
  EXPECT_THAT(ErrorOf("{{ a" + Repeat(".b", 100'000) + " }}"), HasSubstr("levels high"));
  EXPECT_THAT(ErrorOf("{{ a" + Repeat("|e", 100'000) + " }}"), HasSubstr("levels high"));
  EXPECT_THAT(ErrorOf("{% set " + Repeat("(", 10'000) + "a" + Repeat(")", 10'000) + " = 1 %}"),
              HasSubstr("levels"));
  EXPECT_EQ(Rendered("{{ 1" + Repeat("+1", 300) + " }}"), "301");
  EXPECT_EQ(Rendered("{{ ''" + Repeat("~1", 5000) + " }}"), Repeat("1", 5000));
  EXPECT_EQ(
      Rendered("{% if false %}" + Repeat("{% elif false %}x", 5000) + "{% else %}y{% endif %}"),
      "y");
}

TEST(Jinja, RecursionIsLimitedAtRunTime) {
  EXPECT_THAT(ErrorOf("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"), HasSubstr("recursion"));
  EXPECT_THAT(
      ErrorOf("{% macro a(n) %}{% if n %}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(9999) }}"),
      HasSubstr("recursion"));
  EXPECT_THAT(ErrorOf("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("recursion"));
  const std::string deep =
      "{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}";
  EXPECT_EQ(Rendered(deep + "ok"), "ok");
  EXPECT_THAT(ErrorOf(deep + "{{ ns.x }}"), HasSubstr("recursion"));
  EXPECT_THAT(ErrorOf(deep + "{{ ns.x | tojson }}"), HasSubstr("recursion"));
  EXPECT_THAT(ErrorOf(deep + "{{ ns.x == [ns.x] }}"), HasSubstr("recursion"));
  const std::string generators =
      "{% set ns = namespace(x=[1]) %}{% for i in range(50000) %}{% set ns.x = ns.x|map('string') "
      "%}"
      "{% endfor %}{{ ns.x | list }}";
  EXPECT_THAT(ErrorOf(generators), HasSubstr("recursion"));
  EXPECT_EQ(Rendered("{% set x = [] %}{% set _ = x.append(x) %}{{ x }}"), "[[...]]");
  EXPECT_EQ(Rendered("{% set n = namespace() %}{% set n.n = n %}{{ n }}"),
            "<Namespace {'n': <Namespace {...}>}>");
  EXPECT_THAT(ErrorOf("{% set x = [] %}{% set _ = x.append(x) %}{{ x | tojson }}"),
              HasSubstr("recursion"));
  Json nested = 1;
  for (int i = 0; i < 5000; ++i) nested = Json::array({std::move(nested)});
  EXPECT_THAT(ErrorOf("{{ x }}", {{"x", nested}}), HasSubstr("recursion"));
}

TEST(Jinja, WorkAndSizesAreLimited) {
  EXPECT_THAT(ErrorOf("{{ 'a' * 1000000000 }}"), HasSubstr("larger than allowed"));
  EXPECT_THAT(ErrorOf("{{ [0] * 1000000000 }}"), HasSubstr("larger than allowed"));
  EXPECT_THAT(ErrorOf("{{ 'ab' * 170141183460469231731687303715884105727 }}"),
              HasSubstr("larger than allowed"));
  EXPECT_THAT(ErrorOf("{{ range(100001) }}"), HasSubstr("Range too big"));
  EXPECT_THAT(
      ErrorOf("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
      HasSubstr("too much work"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(s='ab') %}{% for i in range(99) %}"
                      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
              HasSubstr("larger than allowed"));
  EXPECT_THAT(ErrorOf("{% for i in range(9999) %}{{ 'x' * 1000000 }}{% endfor %}"),
              HasSubstr("output is longer"));
  EXPECT_THAT(ErrorOf("{% set x = [1] %}{% for i in x %}{{ x.append(i) }}{% endfor %}"),
              HasSubstr("larger than allowed"));
  EXPECT_THAT(ErrorOf("{{ '%1000000000d' % 1 }}"), HasSubstr("larger than"));
  EXPECT_THAT(ErrorOf("{{ '{:1000000000}'.format(1) }}"), HasSubstr("larger than"));
  EXPECT_THAT(ErrorOf("{{ 'x'.center(1000000000) }}"), HasSubstr("larger than"));
  EXPECT_THAT(ErrorOf("{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}"),
              HasSubstr("larger than"));
  EXPECT_THAT(ErrorOf("{{ 2 ** 127 }}"), HasSubstr("integer too large"));
  EXPECT_THAT(ErrorOf("{{ 1 // 0 }}"), HasSubstr("by zero"));
  EXPECT_THAT(ErrorOf("{{ (-2 ** 126) * 2 // -1 }}"), HasSubstr("integer"));
  RenderLimits small;
  small.memory_bytes = 1024 * 1024;
  EXPECT_FALSE(
      Render("{% set x = [] %}{% for i in range(99999) %}{{ x.append(i) }}{% endfor %}", {}, small)
          .ok());
}

TEST(Jinja, TheSandboxHasNoWayOut) {
  EXPECT_EQ(Rendered("[{{ ''.__class__ }}]"), "[]");
  EXPECT_THAT(ErrorOf("{{ ''.__class__.__mro__ }}"), HasSubstr("unsafe"));
  EXPECT_THAT(ErrorOf("{{ lipsum.__globals__.os }}"), HasSubstr("unsafe"));
  EXPECT_THAT(ErrorOf("{{ ''['__class__']['__mro__'] }}"), HasSubstr("unsafe"));
  EXPECT_THAT(ErrorOf("{{ '{0.__class__}'.format('') }}"), HasSubstr("unsafe"));
  EXPECT_THAT(ErrorOf("{{ (''|attr('__class__')).x }}"), HasSubstr("unsafe"));
  EXPECT_THAT(ErrorOf("{% include '/etc/passwd' %}"), HasSubstr("other templates"));
  EXPECT_THAT(ErrorOf("{% from 'x' import y %}"), HasSubstr("other templates"));
  EXPECT_EQ(Rendered("{% if false %}{% import 'x' as y %}{% endif %}[{{ self }}]"), "[]");
}

TEST(Jinja, MethodsThatChangeContainersWork) {
  EXPECT_EQ(Rendered("{% set x = [1] %}{% set _ = x.append(2) %}{{ x.pop(0) }}{{ x }}"), "1[2]");
  EXPECT_EQ(
      Rendered("{% set x = [1] %}{% set _ = x.extend(x) %}{% set _ = x.insert(1, 'a') %}{{ x }}"),
      "[1, 'a', 1]");
  EXPECT_EQ(
      Rendered(
          "{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}, c=3) %}{{ d.pop('a') }}{{ d }}"),
      "1{'b': 2, 'c': 3}");
  EXPECT_EQ(
      Rendered("{% set d = {} %}{% for i in range(40) %}{% set _ = d.update({i: i}) %}{% endfor %}"
               "{% for i in range(39) %}{% set _ = d.pop(i) %}{% endfor %}{{ d }}{{ d[39.0] }}"),
      "{39: 39}39");
}

// Corners of Jinja's compiler that renders depend on.
TEST(Jinja, ScopesAreThoseOfTheCompiler) {
  EXPECT_EQ(Rendered("{% for x in [1] %}{% continue %}{% else %}e{% endfor %}"), "e");
  EXPECT_EQ(
      Rendered("{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}"),
      "");
  // A name that is assigned before it is read at the top is never the context's.
  EXPECT_EQ(Rendered("{% macro m() %}[{{ x }}]{% endmacro %}{{ m() }}{% set x = 1 %}{{ m() }}",
                     {{"x", "context"}}),
            "[][1]");
  EXPECT_EQ(Rendered("{% if false %}{% set x = 1 %}{% endif %}{{ x }}", {{"x", "context"}}),
            "context");
  EXPECT_EQ(
      Rendered("{% for i in [1, 2] %}{% for k in [1] %}{{ x }}{% endfor %}{% set x = i %}{{ x }}"
               "{% endfor %}",
               {{"x", "context"}}),
      "12");
  EXPECT_EQ(
      Rendered(
          "{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}"),
      "01020");
}

TEST(Jinja, JsonNumbersKeepTheirKind) {
  const Json context = Json::parse(R"({"a": 1, "b": 1.0, "c": 1e2, "d": 18446744073709551615,
                                       "e": -9223372036854775808})");
  EXPECT_EQ(Rendered("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ [b, d] | tojson }}", context),
            "1 1.0 100.0 18446744073709551615 -9223372036854775808 [1.0, 18446744073709551615]");
}

TEST(Jinja, ATemplateCanBeRenderedAgain) {
  const auto parsed = Template::Parse(
      "{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}"
      "{% set x = x|default('d') %}{{ x }}");
  ASSERT_TRUE(parsed.ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*(*parsed)->Render(Json::object(), {}), "1d");
  }
}

TEST(Jinja, FactsOfATemplate) {
  const auto facts = [](const std::string& source) { return (*Template::Parse(source))->facts(); };
  const TemplateFacts read = facts(
      "{% for m in messages %}{{ m.content }}{{ loop.index }}{% if a %}{% set b = 1 %}{% endif "
      "%}{{ b }}"
      "{% endfor %}{% set c = 1 %}{{ c }}{{ range(2) }}{% macro f(p) %}{{ p }}{{ q }}{% endmacro "
      "%}");
  EXPECT_EQ(read.free_variables, (std::set<std::string>{"messages", "a", "b", "q"}));
  EXPECT_EQ(read.content_form, ContentForm::kString);
  EXPECT_FALSE(read.mentions_developer);
  EXPECT_TRUE(facts("{{ x == 'developer' }}").mentions_developer);
  EXPECT_TRUE(facts("{{ x is not string }}").tests_for_string);
  for (const char* const parts :
       {"{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
        "{% for m in messages[1:] %}{% for p in m['content'] | list %}{% endfor %}{% endfor %}",
        "{% set all = messages %}{% for m in all %}{% set c = m.content %}{% for p in c %}{% "
        "endfor %}"
        "{% endfor %}",
        "{% for p in messages[0]['content'] %}{% endfor %}",
        "{{ messages[0].content[0].source_lang_code }}", "{{ messages[0]['content'][0]['text'] }}",
        "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
        "{% for m in messages %}{{ show(m.content) }}{% endfor %}"}) {
    EXPECT_EQ(facts(parts).content_form, ContentForm::kParts) << parts;
  }
  for (const char* const text :
       {"{{ messages[0].content[0] }}", "{{ messages[0].content[0].upper() }}",
        "{% for m in messages %}{% for t in m.tool_calls %}{% endfor %}{% endfor %}",
        "{% for m in messages %}{% for line in m.content.split('\\n') %}{% endfor %}{% endfor %}",
        "{% for m in docs %}{% for p in m.content %}{% endfor %}{% endfor %}"}) {
    EXPECT_EQ(facts(text).content_form, ContentForm::kString) << text;
  }
}

TEST(Jinja, LocalTimes) {
  ASSERT_TRUE(ParseLocalTime("2026-11-29T12:34:56").ok());
  EXPECT_EQ(*ParseLocalTime("2026-11-29"), *ParseLocalTime("2026-11-29 00:00:00"));
  for (const char* const bad : {"", "2026", "2026-13-01", "2026-02-30", "2026-11-29T25:00:00",
                                "2026-11-29T12:34:56Z", "x026-11-29"}) {
    EXPECT_FALSE(ParseLocalTime(bad).ok()) << bad;
  }
  EXPECT_GT(LocalTimeNow(), *ParseLocalTime("2024-01-01"));
  RenderOptions options;
  options.now = *ParseLocalTime("2024-02-29T00:00:07");
  EXPECT_EQ(*(*Template::Parse(
                  "{{ strftime_now('%d %b %Y %H:%M:%S %j %a %f%z%%') }}[{{ strftime_now('') }}]"))
                 ->Render(Json::object(), options),
            "29 Feb 2024 00:00:07 060 Thu 000000%[]");
}

// Real templates with bytes changed at random: an error or a render, never a crash or a hang.
TEST(Jinja, MutatedTemplatesAreHarmless) {
  KVASIR_SHARED_OR_SKIP(folder, "chat-templates");
  const Json data = Json::parse(test::ReadFile(folder / "conversations.json"));
  const Json context = {{"messages", data["conversations"]["tool_parallel_dict"]},
                        {"tools", data["tools"]["two"]},
                        {"add_generation_prompt", true},
                        {"bos_token", "<s>"},
                        {"eos_token", "</s>"}};
  RenderOptions options;
  options.limits.steps = 200'000;
  options.limits.output_bytes = 1024 * 1024;
  const std::string alphabet = "{}%#-+|.,:()[]'\"\\ \n0189abeinorst_=<>!*/~";
  std::mt19937 random(7);
  int parsed_count = 0;
  int rendered_count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = test::ReadFile(entry.path());
    for (int round = 0; round < 12; ++round) {
      std::string mutated = source;
      const int edits = 1 + static_cast<int>(random() % 6);
      for (int edit = 0; edit < edits; ++edit) {
        const std::size_t at = random() % mutated.size();
        const std::size_t length = std::min<std::size_t>(random() % 12, mutated.size() - at);
        switch (random() % 4) {
          case 0:
            mutated[at] = alphabet[random() % alphabet.size()];
            break;
          case 1:
            mutated.erase(at, length);
            break;
          case 2:
            mutated.insert(at, mutated.substr(random() % mutated.size(), length));
            break;
          default:
            mutated.insert(at, 1, alphabet[random() % alphabet.size()]);
        }
        if (mutated.empty()) mutated = "{{";
      }
      const auto parsed = Template::Parse(mutated);
      if (!parsed.ok()) continue;
      ++parsed_count;
      if ((*parsed)->Render(context, options).ok()) ++rendered_count;
    }
  }
  EXPECT_GT(parsed_count, 0);
  EXPECT_GT(rendered_count, 0);
}

}  // namespace
}  // namespace kvasir::text::jinja
