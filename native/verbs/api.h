// The calls of libibverbs and librdmacm that the engine makes, as a table: filled from the libraries at run time
// (loader.cc), or by a test with calls that fail on purpose. Posting and polling are not in it: they are inline in
// verbs.h and go through `ibv_context::ops`, which a test fills too.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

// verbs.h wraps two functions in macros of the same name, which would need the library at link time.
#undef ibv_reg_mr
#undef ibv_query_port

namespace meshcache {

struct VerbsApi {
  // libibverbs
  int (*query_device)(ibv_context*, ibv_device_attr*);
  // Fills the first part of ibv_port_attr, up to and including `phys_state`; the caller zeroes the whole.
  int (*query_port)(ibv_context*, uint8_t port, ibv_port_attr*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  int (*dealloc_pd)(ibv_pd*);
  ibv_mr* (*reg_mr)(ibv_pd*, void* addr, size_t length, int access);
  int (*dereg_mr)(ibv_mr*);
  ibv_comp_channel* (*create_comp_channel)(ibv_context*);
  int (*destroy_comp_channel)(ibv_comp_channel*);
  ibv_cq* (*create_cq)(ibv_context*, int cqe, void* cq_context, ibv_comp_channel*, int comp_vector);
  int (*destroy_cq)(ibv_cq*);
  int (*get_cq_event)(ibv_comp_channel*, ibv_cq**, void** cq_context);
  void (*ack_cq_events)(ibv_cq*, unsigned count);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int mask);
  int (*get_async_event)(ibv_context*, ibv_async_event*);
  void (*ack_async_event)(ibv_async_event*);

  // librdmacm
  rdma_event_channel* (*create_event_channel)();
  void (*destroy_event_channel)(rdma_event_channel*);
  int (*create_id)(rdma_event_channel*, rdma_cm_id**, void* context, rdma_port_space);
  int (*destroy_id)(rdma_cm_id*);
  int (*bind_addr)(rdma_cm_id*, sockaddr*);
  int (*listen)(rdma_cm_id*, int backlog);
  uint16_t (*get_src_port)(rdma_cm_id*);
  int (*resolve_addr)(rdma_cm_id*, sockaddr* source, sockaddr* target, int timeout_ms);
  int (*resolve_route)(rdma_cm_id*, int timeout_ms);
  int (*create_qp)(rdma_cm_id*, ibv_pd*, ibv_qp_init_attr*);
  void (*destroy_qp)(rdma_cm_id*);
  int (*connect)(rdma_cm_id*, rdma_conn_param*);
  int (*accept)(rdma_cm_id*, rdma_conn_param*);
  int (*reject)(rdma_cm_id*, const void* private_data, uint8_t length);
  int (*disconnect)(rdma_cm_id*);
  int (*set_option)(rdma_cm_id*, int level, int name, void* value, size_t length);
  int (*get_cm_event)(rdma_event_channel*, rdma_cm_event**);
  int (*ack_cm_event)(rdma_cm_event*);
  const char* (*event_str)(rdma_cm_event_type);
};

// What the dynamic linker said about the libraries.
struct VerbsLoad {
  const VerbsApi* api = nullptr;  // null: not usable
  const char* step = "";          // the library that could not be used: "libibverbs" or "librdmacm"
  const char* reason = "";        // lives as long as the process
};

// Opens the libraries on the first call (thread-safe); later calls give the same answer.
const VerbsLoad& load_verbs();

}  // namespace meshcache
