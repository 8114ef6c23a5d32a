// GET /: a short page for whoever opens the address in a browser.
#include <fmt/format.h>

#include <string>

#include "base/strings.h"
#include "server/exchange.h"
#include "server/routes.h"

namespace kvasir::server {
void HandleIndex(Context& context, const std::shared_ptr<Exchange>& exchange) {
  std::string rows;
  for (const Route& route : Routes()) {
    rows += fmt::format("<tr><td>{}</td><td><code>{}{}</code></td></tr>\n",
                        route.get && route.post ? "GET, POST"
                        : route.get             ? "GET"
                                                : "POST",
                        route.path, route.prefix ? "{id}" : "");
  }
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.body = fmt::format(
      R"(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Kvasir: {0}</title>
<style>body{{font:16px/1.5 sans-serif;margin:3em auto;max-width:44em;padding:0 1em}}
td{{padding:0 1em 0 0}}</style>
<h1>{0}</h1>
<p>Served by Kvasir {1}, context {2} tokens. The base address for OpenAI clients is <code>/v1</code>.</p>
<table>
{3}</table>
</html>
)",
      EscapeHtml(context.model_name()), KVASIR_VERSION, context.max_model_len(), rows);
  exchange->Respond(std::move(response));
}

}  // namespace kvasir::server
