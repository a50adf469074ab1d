# install.cmake - the files that only a Debian package has; run by CPack.
# SOURCE: the tree; MADE: a folder for what is made here; VERSION; DATADIR relative to the prefix
set(doc "${CMAKE_INSTALL_PREFIX}/${DATADIR}/doc/nibble")
string(TIMESTAMP DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file("${SOURCE}/packaging/debian/changelog.in" "${MADE}/changelog.Debian" @ONLY)
configure_file("${SOURCE}/CHANGELOG.md" "${MADE}/changelog" COPYONLY)
foreach(name IN ITEMS changelog changelog.Debian)
    execute_process(COMMAND gzip -9nf "${MADE}/${name}" COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL "${MADE}/${name}.gz" DESTINATION "${doc}")
endforeach()
file(INSTALL "${SOURCE}/packaging/debian/copyright" DESTINATION "${doc}")
file(INSTALL "${SOURCE}/packaging/debian/lintian-overrides" DESTINATION
    "${CMAKE_INSTALL_PREFIX}/${DATADIR}/lintian/overrides" RENAME nibble)
