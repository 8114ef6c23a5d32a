// The alphabet of dimensions, used in every shape comment of the math tower:
//   T tokens in the step     S sequences          V vocabulary
//   Hq query heads           Hkv KV heads         D head size
//   M model (hidden) size    F feed-forward size  B tokens a block
//   L layers                 N rows of a weight (outputs)   K columns of a weight (inputs)
// [T, M] is row-major with M contiguous unless a leading dimension is given.
#pragma once
