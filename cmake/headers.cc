// Nothing: the file that the precompiled headers of cmake/compile.cmake hang on.
