# Files into the binary, as the .cc `out` that defines `variable` of namespace kvasir::plan, which
# `header` declares. Rewritten when a file changes.
function(kvasir_write_embedded out header definition)
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT
    "// Written by cmake/embed.cmake.\n#include \"${header}\"\n\nnamespace kvasir::plan {\n\n${definition};\n\n}  // namespace kvasir::plan\n")
endfunction()

# `variable` is a std::vector<EmbeddedFile> of all files that match `pattern`: (name without folder
# and extension, text), sorted by name. Files may be added.
function(kvasir_embed_files out header variable pattern)
  file(GLOB files CONFIGURE_DEPENDS ${pattern})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(items "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WLE)
    file(READ ${file} text)
    string(APPEND items "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  kvasir_write_embedded(${out} ${header}
    "const std::vector<EmbeddedFile> ${variable} = {\n${items}}")
endfunction()

# `variable` is a std::string_view of one file's text.
function(kvasir_embed_text out header variable file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  kvasir_write_embedded(${out} ${header}
    "const std::string_view ${variable} = R\"embedded(${text})embedded\"")
endfunction()
