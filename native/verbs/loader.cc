// Opens libibverbs and librdmacm at run time, so that the addon also starts where they are not installed.
#include <dlfcn.h>

#include <string>

#include "api.h"

namespace meshcache {
namespace {

// A library and what of it could not be had.
class Library {
 public:
  Library(const char* file, const char* version) : file_(file), version_(version) {
    handle_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* message = dlerror();
      reason_ = message != nullptr ? message : std::string(file) + " cannot be loaded";
    }
  }

  // The version that the headers were written for, or whatever there is of this name.
  template <typename Function>
  void find(Function*& function, const char* symbol) {
    if (handle_ == nullptr) return;
#ifdef __GLIBC__
    void* found = dlvsym(handle_, symbol, version_);
    if (found == nullptr) found = dlsym(handle_, symbol);
#else  // musl takes the default version
    (void)version_;
    void* found = dlsym(handle_, symbol);
#endif
    function = reinterpret_cast<Function*>(found);
    if (found == nullptr) reason_ += (reason_.empty() ? std::string(file_) + " lacks " : ", ") + symbol;
  }

  // Empty: all is there.
  const std::string& reason() const { return reason_; }

 private:
  const char* const file_;
  const char* const version_;
  void* handle_ = nullptr;  // never closed: the library has threads and handlers of its own
  std::string reason_;
};

std::string load_libibverbs(VerbsApi& api) {
  Library library("libibverbs.so.1", "IBVERBS_1.1");
  library.find(api.query_device, "ibv_query_device");
  library.find(api.query_port, "ibv_query_port");
  library.find(api.alloc_pd, "ibv_alloc_pd");
  library.find(api.dealloc_pd, "ibv_dealloc_pd");
  library.find(api.reg_mr, "ibv_reg_mr");
  library.find(api.dereg_mr, "ibv_dereg_mr");
  library.find(api.create_comp_channel, "ibv_create_comp_channel");
  library.find(api.destroy_comp_channel, "ibv_destroy_comp_channel");
  library.find(api.create_cq, "ibv_create_cq");
  library.find(api.destroy_cq, "ibv_destroy_cq");
  library.find(api.get_cq_event, "ibv_get_cq_event");
  library.find(api.ack_cq_events, "ibv_ack_cq_events");
  library.find(api.modify_qp, "ibv_modify_qp");
  library.find(api.get_async_event, "ibv_get_async_event");
  library.find(api.ack_async_event, "ibv_ack_async_event");
  return library.reason();
}

std::string load_librdmacm(VerbsApi& api) {
  Library library("librdmacm.so.1", "RDMACM_1.0");
  library.find(api.create_event_channel, "rdma_create_event_channel");
  library.find(api.destroy_event_channel, "rdma_destroy_event_channel");
  library.find(api.create_id, "rdma_create_id");
  library.find(api.destroy_id, "rdma_destroy_id");
  library.find(api.bind_addr, "rdma_bind_addr");
  library.find(api.listen, "rdma_listen");
  library.find(api.get_src_port, "rdma_get_src_port");
  library.find(api.resolve_addr, "rdma_resolve_addr");
  library.find(api.resolve_route, "rdma_resolve_route");
  library.find(api.create_qp, "rdma_create_qp");
  library.find(api.destroy_qp, "rdma_destroy_qp");
  library.find(api.connect, "rdma_connect");
  library.find(api.accept, "rdma_accept");
  library.find(api.reject, "rdma_reject");
  library.find(api.disconnect, "rdma_disconnect");
  library.find(api.set_option, "rdma_set_option");
  library.find(api.get_cm_event, "rdma_get_cm_event");
  library.find(api.ack_cm_event, "rdma_ack_cm_event");
  library.find(api.event_str, "rdma_event_str");
  return library.reason();
}

struct Loaded {
  VerbsApi api{};
  std::string reason;
  VerbsLoad result;

  Loaded() {
    result.step = "libibverbs";
    reason = load_libibverbs(api);
    if (reason.empty()) {
      result.step = "librdmacm";
      reason = load_librdmacm(api);
    }
    result.reason = reason.c_str();
    if (!reason.empty()) return;
    result.step = "";
    result.api = &api;
  }
};

}  // namespace

const VerbsLoad& load_verbs() {
  // Never destroyed: engines may be at work until the very end of the process.
  static const Loaded& loaded = *new Loaded;
  return loaded.result;
}

}  // namespace meshcache
