// GET /v1/models and /v1/models/{id}.
#include "server/exchange.h"
#include "server/routes.h"

namespace kvasir::server {
namespace {

Json ModelCard(const Context& context, const std::string& name) {
  return Json{
      {"id", name},
      {"object", "model"},
      {"created", context.created_s},
      {"owned_by", "kvasir"},
      {"root", context.model.root.empty() ? name : context.model.root},
      {"parent", nullptr},
      {"max_model_len", context.max_model_len()},
      {"permission", Json::array({Json{
                         {"id", "modelperm-" + Sha256Hex(name).substr(0, 32)},
                         {"object", "model_permission"},
                         {"created", context.created_s},
                         {"allow_create_engine", false},
                         {"allow_sampling", true},
                         {"allow_logprobs", true},
                         {"allow_search_indices", false},
                         {"allow_view", true},
                         {"allow_fine_tuning", false},
                         {"organization", "*"},
                         {"group", nullptr},
                         {"is_blocking", false},
                     }})},
  };
}

}  // namespace

void HandleModels(Context& context, const std::shared_ptr<Exchange>& exchange) {
  Json data = Json::array();
  for (const std::string& name : context.config.served_model_names) {
    data.push_back(ModelCard(context, name));
  }
  exchange->RespondJson(Json{{"object", "list"}, {"data", std::move(data)}}.dump());
}

void HandleModel(Context& context, const std::shared_ptr<Exchange>& exchange) {
  std::string name = exchange->request.path.substr(exchange->route->path.size());
  if (!context.ServesModel(name) && !name.empty() && name.back() == '/') name.pop_back();
  if (!context.ServesModel(name)) return exchange->Fail(UnknownModel(name));
  exchange->RespondJson(ModelCard(context, name).dump());
}

}  // namespace kvasir::server
