// The list of all families; each is defined in its own file.
#pragma once

#include <vector>

#include "model/blueprint.h"

namespace kvasir::model {

extern const Family kCohere2;
extern const Family kErnie45;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kGlm4;
extern const Family kGpt2;
extern const Family kGptNeox;
extern const Family kGranite;
extern const Family kLlama;
extern const Family kMistral;
extern const Family kOlmo2;
extern const Family kPhi3;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kSmolLm3;
extern const Family kStarcoder2;

/// sqrt(hidden_size), shared by Gemma 2 and 3.
float GemmaEmbeddingScale(ConfigReader& reader, int64_t hidden_size);
TensorNames GemmaNames(const ConfigReader& reader, const ModelSpec& spec);

}  // namespace kvasir::model
