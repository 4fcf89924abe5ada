// A fake of libibverbs, librdmacm and the devices below them: engines in one process read from one another through
// it, and it fails on purpose. Devices are known by their IP addresses, so that one table of calls serves any
// number of "hosts".
//
// What it promises the tests:
// - One mutex guards everything. The thread that plays the devices writes into memory only under it, and only for
//   work requests that are neither completed nor gone with their queue pair: a late write is impossible here, so
//   one that a test sees is the engine's fault (it reported too early).
// - Misuse that real libraries answer with EBUSY, a hang, or silent corruption ends the process with a message.
// - Whatever is created is counted; `check_clean` names what is left.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../verbs/api.h"

namespace meshcache::fake {

struct DeviceSpec {
  std::string name;
  std::string address;  // numeric IP
  uint32_t max_message_bytes = 1u << 30;
  int max_qp_wr = 1024;
  int max_cqe = 32768;
  int max_sge = 16;
  int max_read_depth = 16;  // reads under way on one queue pair, in both directions
};

// How the world misbehaves. Probabilities are per occasion.
struct Faults {
  uint32_t nic_delay_us_max = 0;      // before a work request is executed
  uint32_t network_delay_us_max = 0;  // before a connection message arrives
  uint32_t flush_delay_us_max = 0;    // between the error of a queue pair and its flushed completions
  uint32_t retry_us = 2000;           // until a device gives up on a peer that does not answer
  double call_failure = 0;            // creating calls: ENOMEM, ENODEV, EMFILE, EAGAIN
  double post_failure = 0;            // ibv_post_send, anywhere in a chain
  double completion_error = 0;        // a work request completes with any bad status
  double stuck_queue_pair = 0;        // a new connection never completes anything until it is destroyed
  double message_loss = 0;            // connection messages
  double odd_event = 0;               // an error or DISCONNECTED in the place of a connection event
  double async_event = 0;             // QP_FATAL, COMM_EST, PORT_ERR and PORT_ACTIVE, per connection
  double torn_read = 0;               // bytes land early, or after the error and before the flushed completion
  bool stale_completions = false;     // completions outlive their queue pair in the completion queue (as in rxe)
  bool inline_nic = false;            // what is due happens within the call (fast, one order of things only)
};

struct Device;
struct Pd;
struct Mr;
struct CompChannel;
struct Cq;
struct Qp;
struct EventChannel;
struct Id;
struct WorkRequest;
struct CmEvent;

// Prints and aborts: the code under test broke a rule of the libraries.
[[noreturn]] void misuse(const std::string& what);

class Fabric {
 public:
  explicit Fabric(uint64_t seed);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // The table to hand to engines. It speaks to the one fabric that lives at the time.
  static const VerbsApi& api();

  void add_device(const DeviceSpec& spec);
  void set_faults(const Faults& faults);
  // The `after`-th call (from 0) of that name from now on, and `count - 1` more, fail with this errno.
  void fail_call(const std::string& name, int errnum, uint32_t after = 0, uint32_t count = 1);
  // The `after`-th work request executed from now on, of any queue pair, completes with this status.
  void fail_completion(ibv_wc_status status, uint32_t after = 0);

  // Everything sent from or to a device with its link down is lost. PORT_ERR and PORT_ACTIVE are reported.
  void set_link(const std::string& device, bool up);
  // A stalled device answers nobody; nothing is reported.
  void set_stalled(const std::string& device, bool stalled);
  // While paused a device executes none of its own work requests, neither well nor badly.
  void set_paused(const std::string& device, bool paused);
  // DEVICE_FATAL, DEVICE_REMOVAL for every id; nothing completes on it any more.
  void remove_device(const std::string& device);
  void inject_async(const std::string& device, ibv_event_type type);
  // DISCONNECTED on every connection of the device, on both sides, as when both were told to.
  void disconnect_all(const std::string& device);
  // Puts an event on every connected or connecting id of the device.
  void inject_cm(const std::string& device, rdma_cm_event_type type, int status);

  uint64_t calls(const std::string& name);      // calls so far
  uint64_t read_bytes(const std::string& device);  // landed in memory through that device
  uint64_t work_requests(const std::string& device);
  uint64_t live(const std::string& kind);       // "pd", "mr", "comp_channel", "cq", "qp", "event_channel", "id"
  // Connected ones whose other end could do more than read.
  uint64_t writable_queue_pairs();
  // Waits until `done` holds, checked whenever anything happens; false after `timeout_ms`.
  bool wait(const std::function<bool(Fabric&)>& done, uint32_t timeout_ms);
  // Empty, or what is left, one kind a line.
  std::string leaks();

  // What follows is for the calls in fake_*.cc, with the mutex held.
  using Clock = std::chrono::steady_clock;

  static Fabric& current();
  bool fails(const char* name);  // counts the call; true: sets errno, and the call is to fail
  bool fails_planned(const char* name);  // the same, but only as told by fail_call
  bool chance(double probability);
  uint32_t below(uint32_t limit);
  uint64_t adopt();  // a new serial
  void after(uint32_t delay_us, std::function<void()> task);
  void run_due();  // only with inline_nic
  Device* device_at(const std::string& address);
  Device* device_named(const std::string& name);
  void changed() { changed_.notify_all(); }

  std::mutex mutex;
  Faults faults;
  std::map<std::string, std::unique_ptr<Device>> devices;  // by address
  std::unordered_map<uint64_t, Pd*> pds;
  std::unordered_map<uint64_t, Mr*> mrs;
  std::unordered_map<uint32_t, Mr*> mrs_by_key;
  std::unordered_map<uint64_t, CompChannel*> comp_channels;
  std::unordered_map<uint64_t, Cq*> cqs;
  std::unordered_map<uint64_t, Qp*> qps;
  std::unordered_map<uint64_t, EventChannel*> event_channels;
  std::unordered_map<uint64_t, Id*> ids;
  uint32_t next_qp_num = 16;
  uint16_t next_port = 32768;
  int planned_status = -1;  // of the work request executed after `planned_after` others
  uint32_t planned_after = 0;
  std::mt19937_64 random;

 private:
  struct PlannedFailure {
    int errnum;
    uint32_t after;
    uint32_t count;
  };

  void run();

  std::condition_variable wake_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::function<void()>> tasks_;
  std::map<std::string, PlannedFailure> planned_;
  std::map<std::string, uint64_t> calls_;
  uint64_t serial_ = 0;
  bool ending_ = false;
  bool running_due_ = false;
  std::thread thread_;
};

// The lock of one call into the fabric: what is due is run at its end when devices run inline.
class Call {
 public:
  Call() : fabric(Fabric::current()), lock_(fabric.mutex) {}
  ~Call() {
    const int saved = errno;
    fabric.run_due();
    errno = saved;
  }
  Fabric& fabric;

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace meshcache::fake
