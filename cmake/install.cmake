# Installing: the program with its texts and configs, by `cmake --install` or as a Debian package.
#   cmake --build build/demo --target package      build/demo/moraine_<version>_<architecture>.deb
include(GNUInstallDirs)
install(TARGETS moraine RUNTIME)
install(FILES README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)  # the name that Debian asks for
install(DIRECTORY configs deploy DESTINATION ${CMAKE_INSTALL_DATADIR}/moraine)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME moraine)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Moraine developers <moraine@invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "pretrains, adapts, evaluates and runs ZAYA1-class language models on CPUs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)            # the libraries that the program was linked to, by dpkg-shlibdeps
set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin)    # loaded at run time by jobs of mpirun only
include(CPack)
