# A text file into the binary: writes `out`, a .cc that defines the std::string_view `variable` of
# namespace kvasir::plan, which `header` declares. Rewritten when the file changes.
function(kvasir_embed_text out header variable file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(CONCAT content "// Written by cmake/embed_text.cmake.\n#include \"${header}\"\n\n"
    "namespace kvasir::plan {\n\nconst std::string_view ${variable} = R\"embedded(${text})embedded\";\n\n"
    "}  // namespace kvasir::plan\n")
  file(CONFIGURE OUTPUT ${out} CONTENT "${content}" @ONLY)
endfunction()
