#include "descriptor_listener.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "thread_signals.h"

namespace meshcache {
namespace {

constexpr int kBacklog = 4096;
constexpr int kEventsAtOnce = 64;
constexpr int kAcceptsAtOnce = 64;
constexpr auto kPause = std::chrono::milliseconds(100);

// Numbers in epoll events; connections have those from kFirstConnection on.
constexpr uint64_t kWake = 0;
constexpr uint64_t kListener = 1;
constexpr uint64_t kFirstConnection = 2;

[[noreturn]] void fail(const char* call, int error, const std::string& path) {
  throw SystemError(call, error, std::string(call) + " of " + path + ": " + std::strerror(error));
}

// The system call itself: glibc's function is of a newer version than the oldest that this is to run with.
bool status_of(const std::string& path, struct stat& status) {
  return syscall(SYS_newfstatat, AT_FDCWD, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

std::vector<UniqueFd> descriptors_of(msghdr& message) {
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, reinterpret_cast<const uint8_t*>(part) + at, sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

// Room for the control message of a few descriptors. The system closes those for which there is none.
struct alignas(cmsghdr) ControlBuffer {
  char bytes[CMSG_SPACE(2 * sizeof(int))];
};

}  // namespace

DescriptorListener::DescriptorListener(DescriptorListenerOptions options, std::function<void()> on_record)
    : options_(std::move(options)), on_record_(std::move(on_record)), next_id_(kFirstConnection) {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) fail("epoll_create1", errno, options_.path);
  wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) fail("eventfd", errno, options_.path);
  try {
    bind_and_listen();
    watch(wake_.get(), kWake, EPOLLIN, EPOLL_CTL_ADD);
    watch(listener_.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    close();
    fail("pthread_create", EAGAIN, options_.path);
  } catch (...) {
    close();
    throw;
  }
}

// Nobody can connect before listen(), when the file has its mode and group.
void DescriptorListener::bind_and_listen() {
  const std::string& path = options_.path;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.find('\0') != std::string::npos) fail("bind", EINVAL, path);
  if (path.size() >= sizeof address.sun_path) fail("bind", ENAMETOOLONG, path);
  std::memcpy(address.sun_path, path.data(), path.size());
  listener_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener_) fail("socket", errno, path);
  // The file gets the mode of the socket, less the umask: the umask itself is not touched, it is that of all threads.
  fchmod(listener_.get(), options_.mode & 0700);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("bind", errno, path);
  struct stat status {};
  if (!status_of(path, status)) fail("stat", errno, path);
  file_device_ = status.st_dev;
  file_number_ = status.st_ino;
  if (options_.gid >= 0 && lchown(path.c_str(), static_cast<uid_t>(-1), static_cast<gid_t>(options_.gid)) != 0) {
    fail("chown", errno, path);
  }
  if (chmod(path.c_str(), options_.mode) != 0) fail("chmod", errno, path);
  if (listen(listener_.get(), kBacklog) != 0) fail("listen", errno, path);
}

void DescriptorListener::watch(int fd, uint64_t id, uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) fail("epoll_ctl", errno, options_.path);
}

void DescriptorListener::close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(is_closing_, true)) return;
  }
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  connections_.clear();
  ready_.clear();
  struct stat status {};
  if (file_number_ != 0 && status_of(options_.path, status) && status.st_dev == file_device_ &&
      status.st_ino == file_number_) {
    unlink(options_.path.c_str());
  }
  listener_.reset();
  wake_.reset();
  epoll_.reset();
}

std::vector<DescriptorRecord> DescriptorListener::take() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<DescriptorRecord> records;
  for (const uint64_t id : ready_) {
    const auto at = connections_.find(id);
    if (at != connections_.end()) records.push_back(std::move(at->second.record));
  }
  ready_.clear();
  return records;
}

void DescriptorListener::reply(uint64_t connection, const void* bytes, size_t length, int fd) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto at = connections_.find(connection);
  if (at == connections_.end() || !at->second.has_sent) return;
  iovec part{const_cast<void*>(bytes), length};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof fd);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  // The first bytes on a socket always have room. Whatever else goes wrong, the peer sees the connection end.
  [[maybe_unused]] const ssize_t sent = sendmsg(at->second.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  end(at);
}

DescriptorListenerStats DescriptorListener::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void DescriptorListener::run() {
  pthread_setname_np(pthread_self(), "meshcache-fds");
  int timeout = -1;
  for (;;) {
    epoll_event events[kEventsAtOnce];
    const int count = epoll_wait(epoll_.get(), events, kEventsAtOnce, timeout);
    bool has_records;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (is_closing_) return;
      const size_t before = ready_.size();
      for (int i = 0; i < count; i++) {
        const uint64_t id = events[i].data.u64;
        if (id == kListener) accept_all();
        if (id < kFirstConnection) continue;
        const auto at = connections_.find(id);
        if (at != connections_.end()) serve(at, events[i].events);
      }
      const auto now = Clock::now();
      expire(now);
      timeout = wait_ms(now);
      has_records = ready_.size() > before;
    }
    if (has_records) on_record_();
  }
}

void DescriptorListener::accept_all() {
  for (int i = 0; i < kAcceptsAtOnce; i++) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      accept(std::move(socket));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      // No descriptors or no memory: those who wait would be announced without end.
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      is_paused_ = true;
      accepts_at_ = Clock::now() + kPause;
      return;
    }
  }
}

void DescriptorListener::accept(UniqueFd socket) {
  if (connections_.size() >= options_.connections_max_count) {
    stats_.refused++;
    return;
  }
  stats_.connections++;
  const uint64_t id = next_id_++;
  try {
    const PeerCredentials peer = peer_credentials(socket.get());
    watch(socket.get(), id, EPOLLIN, EPOLL_CTL_ADD);
    Connection connection;
    connection.socket = std::move(socket);
    connection.ends_at = Clock::now() + std::chrono::milliseconds(options_.timeout_ms);
    connection.record.connection = id;
    connection.record.pid = peer.pid;
    connection.record.uid = peer.uid;
    connection.record.gid = peer.gid;
    connections_.emplace(id, std::move(connection));
  } catch (const SystemError&) {
    stats_.refused++;
  }
}

void DescriptorListener::serve(Connections::iterator at, uint32_t events) {
  Connection& connection = at->second;
  // It waits for its answer, and only its end is announced.
  if (connection.has_sent) return end(at);
  if ((events & EPOLLIN) == 0 || !receive(connection)) {
    stats_.malformed++;
    return end(at);
  }
  if (!connection.has_sent) return;
  ready_.push_back(at->first);
  epoll_event nothing{};
  nothing.data.u64 = at->first;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &nothing);
}

// False: what has come is not just one record.
bool DescriptorListener::receive(Connection& connection) {
  const int socket = connection.socket.get();
  std::vector<uint8_t> bytes(options_.record_bytes + 1);
  iovec part{bytes.data(), bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (length < 0) return errno == EAGAIN || errno == EINTR;
  std::vector<UniqueFd> descriptors = descriptors_of(message);
  if (static_cast<size_t>(length) != options_.record_bytes) return false;
  if ((message.msg_flags & MSG_CTRUNC) != 0 || descriptors.size() > 1) return false;
  char more;
  if (recv(socket, &more, sizeof more, MSG_PEEK | MSG_DONTWAIT) > 0) return false;
  bytes.pop_back();
  connection.record.bytes = std::move(bytes);
  if (!descriptors.empty()) connection.record.fd = std::move(descriptors.front());
  connection.has_sent = true;
  return true;
}

void DescriptorListener::end(Connections::iterator at) {
  // By hand: a child process that is just being made may have the socket too, for which it would stay watched.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, at->second.socket.get(), nullptr);
  connections_.erase(at);
}

void DescriptorListener::expire(Clock::time_point now) {
  while (!connections_.empty() && connections_.begin()->second.ends_at <= now) {
    stats_.timed_out++;
    end(connections_.begin());
  }
  if (!is_paused_ || accepts_at_ > now) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListener;
  is_paused_ = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0;
  accepts_at_ = now + kPause;
}

// Until something has to be done without an event; -1: forever.
int DescriptorListener::wait_ms(Clock::time_point now) const {
  auto next = Clock::time_point::max();
  if (!connections_.empty()) next = connections_.begin()->second.ends_at;
  if (is_paused_) next = std::min(next, accepts_at_);
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count() + 1;
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

PeerCredentials peer_credentials(int socket) {
  struct {
    pid_t pid;
    uid_t uid;
    gid_t gid;
  } credentials{};
  socklen_t size = sizeof credentials;
  const auto failed = [](int error) {
    throw SystemError("getsockopt", error, std::string("SO_PEERCRED: ") + std::strerror(error));
  };
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) failed(errno);
  // Of sockets that have no peer the system knows nobody.
  if (credentials.uid == static_cast<uid_t>(-1)) failed(ENOTCONN);
  return {credentials.pid, credentials.uid, credentials.gid};
}

}  // namespace meshcache
