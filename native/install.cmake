# Puts the addon and its SHA-256 where it is loaded from. By renaming: a process that has it loaded keeps its file, and
# nobody ever sees half of one.
file(SHA256 "${ADDON}" sum)
file(MAKE_DIRECTORY "${OUTPUT_DIR}")
file(REMOVE "${OUTPUT_DIR}/meshcache.node.sha256")
configure_file("${ADDON}" "${OUTPUT_DIR}/meshcache.node.new" COPYONLY)
file(RENAME "${OUTPUT_DIR}/meshcache.node.new" "${OUTPUT_DIR}/meshcache.node")
file(WRITE "${OUTPUT_DIR}/meshcache.node.sha256" "${sum}\n")
