// The two ways in which most checkpoints name their tensors.
#include "model/blueprint.h"

namespace kvasir::model {

TensorNames LlamaNames(const ModelSpec& spec, const std::string& prefix) {
  const LayerSpec& layer = spec.layers.front();
  const GroupedQueryAttention& attention = layer.gqa();
  const DenseFfn& ffn = layer.dense_ffn();
  const std::string at = prefix + "layers.{}.";

  TensorNames names;
  names.embedding = prefix + "embed_tokens";
  names.final_norm = prefix + "norm";
  names.head = "lm_head";
  names.ignored_suffixes = {"rotary_emb.inv_freq"};
  LayerNames& in = names.layer;
  in.attention_pre_norm = at + "input_layernorm";
  in.ffn_pre_norm = at + "post_attention_layernorm";
  in.q_norm = at + "self_attn.q_norm";
  in.k_norm = at + "self_attn.k_norm";
  in.qkv.parts = {{at + "self_attn.q_proj", attention.QueryCols()},
                  {at + "self_attn.k_proj", attention.KvCols()},
                  {at + "self_attn.v_proj", attention.KvCols()}};
  in.qkv.cols = spec.hidden_size;
  in.attention_output.parts = {{at + "self_attn.o_proj", spec.hidden_size}};
  in.attention_output.cols = attention.QueryCols();
  if (ffn.gated) in.ffn_input.parts.push_back({at + "mlp.gate_proj", ffn.hidden_size});
  in.ffn_input.parts.push_back({at + "mlp.up_proj", ffn.hidden_size});
  in.ffn_input.cols = spec.hidden_size;
  in.ffn_output.parts = {{at + "mlp.down_proj", spec.hidden_size}};
  in.ffn_output.cols = ffn.hidden_size;
  return names;
}

std::string FindPrefix(const ConfigReader& reader, const std::vector<std::string>& candidates,
                       std::string_view tensor) {
  for (const std::string& prefix : candidates) {
    if (reader.weights().Find(prefix + std::string(tensor)) != nullptr) return prefix;
  }
  return candidates.front();
}

TensorNames GgufNames(const ConfigReader& reader, const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers.front();
  const GroupedQueryAttention& attention = layer.gqa();
  const DenseFfn& ffn = layer.dense_ffn();
  const auto has = [&](std::string_view name) { return reader.weights().Find(name) != nullptr; };

  TensorNames names;
  names.embedding = "token_embd";
  names.positions = "position_embd";
  names.final_norm = "output_norm";
  names.head = "output";
  names.ignored_prefixes = {"rope_freqs.", "rope_factors_"};  // read with the rope's configuration
  LayerNames& in = names.layer;
  in.attention_pre_norm = "blk.{}.attn_norm";
  in.attention_post_norm = "blk.{}.post_attention_norm";
  in.ffn_pre_norm = "blk.{}.ffn_norm";
  in.ffn_post_norm = "blk.{}.post_ffw_norm";
  in.q_norm = "blk.{}.attn_q_norm";
  in.k_norm = "blk.{}.attn_k_norm";
  if (has("blk.0.attn_qkv.weight")) {
    in.qkv.parts = {{"blk.{}.attn_qkv", attention.QueryCols() + 2 * attention.KvCols()}};
  } else {
    in.qkv.parts = {{"blk.{}.attn_q", attention.QueryCols()},
                    {"blk.{}.attn_k", attention.KvCols()},
                    {"blk.{}.attn_v", attention.KvCols()}};
  }
  in.qkv.cols = spec.hidden_size;
  in.attention_output.parts = {{"blk.{}.attn_output", spec.hidden_size}};
  in.attention_output.cols = attention.QueryCols();
  if (ffn.gated && has("blk.0.ffn_gate.weight")) {
    in.ffn_input.parts = {{"blk.{}.ffn_gate", ffn.hidden_size}, {"blk.{}.ffn_up", ffn.hidden_size}};
  } else {
    in.ffn_input.parts = {{"blk.{}.ffn_up", (ffn.gated ? 2 : 1) * ffn.hidden_size}};
  }
  in.ffn_input.cols = spec.hidden_size;
  in.ffn_output.parts = {{"blk.{}.ffn_down", spec.hidden_size}};
  in.ffn_output.cols = ffn.hidden_size;
  for (LinearSource* source : {&in.qkv, &in.attention_output, &in.ffn_input, &in.ffn_output}) {
    source->bias = LinearSource::Bias::kIfPresent;
  }
  return names;
}

TensorNames DefaultNames(const ConfigReader& reader, const ModelSpec& spec) {
  return reader.is_gguf() ? GgufNames(reader, spec) : LlamaNames(spec, "model.");
}

}  // namespace kvasir::model
