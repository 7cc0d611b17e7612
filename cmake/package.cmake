# cpack: one Debian package of libraries, headers, tools and manuals; vkattn_mpi stays out of it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME vkattn)
set(CPACK_PACKAGE_CONTACT "vkattn maintainers")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};vkattn;Unspecified;/")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

# What is linked is found by dpkg-shlibdeps; the Vulkan loader is opened at run time.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS libvulkan1)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "mesa-vulkan-drivers | vulkan-icd")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS libvulkan-dev)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Whole attention layers as Vulkan compute shaders, on any GPU or none:
 the library with its headers and package files, the commands vkattn and
 vkattn-mnist, their manual pages and bash completion.")
include(CPack)
