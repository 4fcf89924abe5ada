// A Unix socket for descriptors: each connection sends one record, with or without a descriptor, and gets one answer.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "system_error.h"
#include "unique_fd.h"

namespace meshcache {

struct DescriptorListenerOptions {
  std::string path;
  uint32_t mode = 0600;
  int64_t gid = -1;  // -1: that of the process
  size_t record_bytes = 0;
  size_t connections_max_count = 0;
  uint32_t timeout_ms = 0;  // of one connection, from accept to close
};

struct DescriptorRecord {
  uint64_t connection = 0;
  std::vector<uint8_t> bytes;
  UniqueFd fd;  // of what came with it, or none
  // Who it was that connected.
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct DescriptorListenerStats {
  uint64_t connections = 0;  // without those that were refused
  uint64_t refused = 0;      // there were too many
  uint64_t malformed = 0;    // ended, or were ended, without just one record and at most one descriptor
  uint64_t timed_out = 0;
};

// Listens on a thread of its own. All functions may be called from any thread.
class DescriptorListener {
 public:
  static constexpr size_t kRecordMaxBytes = 4096;
  static constexpr size_t kReplyMaxBytes = 256;

  // `on_record` is called on the listener's thread when there is something to take. Throws SystemError when the path cannot
  // be listened on.
  DescriptorListener(DescriptorListenerOptions options, std::function<void()> on_record);
  ~DescriptorListener() { close(); }
  DescriptorListener(const DescriptorListener&) = delete;
  DescriptorListener& operator=(const DescriptorListener&) = delete;

  // Records that have come since the call before, of connections that are still there.
  std::vector<DescriptorRecord> take();
  // Sends the answer, with a descriptor unless it is -1, and closes the connection. Nothing happens when that has ended.
  void reply(uint64_t connection, const void* bytes, size_t length, int fd);
  DescriptorListenerStats stats() const;
  // Ends all connections, closes the descriptors that nobody has taken, and removes the socket from its path. Idempotent.
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  struct Connection {
    UniqueFd socket;
    Clock::time_point ends_at;
    bool has_sent = false;
    DescriptorRecord record;  // until it is taken
  };
  using Connections = std::map<uint64_t, Connection>;

  void bind_and_listen();
  void watch(int fd, uint64_t id, uint32_t events, int operation);
  void run();
  void accept_all();
  void accept(UniqueFd socket);
  void serve(Connections::iterator at, uint32_t events);
  bool receive(Connection& connection);
  void end(Connections::iterator at);
  void expire(Clock::time_point now);
  int wait_ms(Clock::time_point now) const;

  const DescriptorListenerOptions options_;
  const std::function<void()> on_record_;
  UniqueFd epoll_;
  UniqueFd wake_;
  UniqueFd listener_;
  // The socket file that was made here; 0: none.
  uint64_t file_device_ = 0;
  uint64_t file_number_ = 0;

  mutable std::mutex mutex_;  // of all that follows
  // By number: those that came first, and end first, are first.
  Connections connections_;
  // Those whose records are to be taken; some may have ended.
  std::vector<uint64_t> ready_;
  uint64_t next_id_;
  // When connections are accepted again, after the system had no descriptor or memory for one.
  bool is_paused_ = false;
  Clock::time_point accepts_at_;
  DescriptorListenerStats stats_;
  bool is_closing_ = false;
  std::thread thread_;
};

// Who the process at the other end of a connected Unix socket was when it connected. Throws SystemError.
struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};
PeerCredentials peer_credentials(int socket);

}  // namespace meshcache
