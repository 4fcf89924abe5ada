// The listener for descriptors, and all that its peers may do to it.
#include "../descriptor_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "check.h"
#include "node.h"

namespace meshcache::tests {
namespace {

constexpr size_t kRecordBytes = 48;
constexpr uint32_t kPatienceMs = 60'000;

// A listener in a folder of its own, and what it has taken.
class Listening {
 public:
  explicit Listening(size_t connections_max_count = 16, uint32_t timeout_ms = kPatienceMs) {
    char folder[] = "/tmp/meshcache-listener-XXXXXX";
    CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    listener = std::make_unique<DescriptorListener>(options(connections_max_count, timeout_ms), [this] {
      std::lock_guard<std::mutex> lock(mutex_);
      calls_++;
      changed_.notify_all();
    });
  }
  ~Listening() {
    listener = nullptr;
    rmdir(folder_.c_str());
  }

  DescriptorListenerOptions options(size_t connections_max_count = 16, uint32_t timeout_ms = kPatienceMs) const {
    DescriptorListenerOptions options;
    options.path = path();
    options.mode = 0640;
    options.record_bytes = kRecordBytes;
    options.connections_max_count = connections_max_count;
    options.timeout_ms = timeout_ms;
    return options;
  }

  std::string path() const { return folder_ + "/fds"; }

  // The next record that comes.
  DescriptorRecord record() {
    for (;;) {
      if (taken_.empty()) taken_ = listener->take();
      if (!taken_.empty()) {
        DescriptorRecord first = std::move(taken_.front());
        taken_.erase(taken_.begin());
        return first;
      }
      std::unique_lock<std::mutex> lock(mutex_);
      CHECK(changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [this] { return calls_ > 0; }));
      calls_ = 0;
    }
  }

  std::unique_ptr<DescriptorListener> listener;

 private:
  std::string folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  std::vector<DescriptorRecord> taken_;
};

UniqueFd connect_to(const std::string& path) {
  UniqueFd peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  CHECK_EQ(connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return peer;
}

// Bytes with copies of a descriptor in one message. The listener may have closed the connection: that is no failure.
void send_to(const UniqueFd& peer, size_t length, size_t descriptor_count = 0, int fd = -1) {
  std::vector<uint8_t> bytes(length, 9);
  std::vector<uint8_t> control(CMSG_SPACE(descriptor_count * sizeof(int)));
  iovec part{bytes.data(), length};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor_count > 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptor_count * sizeof(int));
    for (size_t i = 0; i < descriptor_count; i++) std::memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
  }
  const ssize_t sent = sendmsg(peer.get(), &message, MSG_NOSIGNAL);
  CHECK(sent == static_cast<ssize_t>(length) || errno == EPIPE || errno == ECONNRESET);
}

// All that comes until the connection ends, and the last descriptor that came with it.
std::string receive_from(const UniqueFd& peer, UniqueFd* descriptor = nullptr) {
  std::string all;
  for (;;) {
    char bytes[1024];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{bytes, sizeof bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t length = recvmsg(peer.get(), &message, MSG_CMSG_CLOEXEC);
    if (length < 0) CHECK_EQ(errno, ECONNRESET);
    if (length <= 0) return all;
    all.append(bytes, static_cast<size_t>(length));
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    UniqueFd received(fd);
    if (descriptor != nullptr) *descriptor = std::move(received);
  }
}

bool is_same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

TEST(listener_records, "listener: a record comes with its descriptor and its sender, and is answered with another") {
  const size_t descriptors = open_descriptors();
  {
    Listening listening;
    const UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    const UniqueFd peer = connect_to(listening.path());
    send_to(peer, kRecordBytes, 1, file.get());
    DescriptorRecord record = listening.record();
    CHECK(record.bytes == std::vector<uint8_t>(kRecordBytes, 9));
    CHECK(is_same_file(record.fd.get(), file.get()));
    CHECK_EQ(fcntl(record.fd.get(), F_GETFD), FD_CLOEXEC);
    CHECK_EQ(record.pid, getpid());
    CHECK_EQ(record.uid, getuid());
    CHECK_EQ(record.gid, getgid());
    const UniqueFd answer(open("/dev/null", O_RDONLY | O_CLOEXEC));
    listening.listener->reply(record.connection, "answer", 6, answer.get());
    listening.listener->reply(record.connection, "again", 5, -1);
    UniqueFd received;
    CHECK_EQ(receive_from(peer, &received), "answer");
    CHECK(is_same_file(received.get(), answer.get()));

    const UniqueFd bare = connect_to(listening.path());
    send_to(bare, kRecordBytes);
    const DescriptorRecord second = listening.record();
    CHECK(!second.fd);
    listening.listener->reply(second.connection, "x", 1, -1);
    CHECK_EQ(receive_from(bare), "x");
    CHECK_EQ(listening.listener->stats().connections, 2u);
  }
  CHECK_EQ(open_descriptors(), descriptors);
}

TEST(listener_malformed, "listener: what is not one record ends its connection, counted, and leaves no descriptor") {
  const size_t descriptors = open_descriptors();
  {
    Listening listening;
    const size_t before = open_descriptors();
    const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    struct Case {
      size_t length;
      size_t descriptors;
    };
    const std::vector<Case> cases = {{1, 0}, {kRecordBytes - 1, 1}, {kRecordBytes + 1, 1}, {5000, 0}, {kRecordBytes, 2},
                                     {kRecordBytes, 3}, {kRecordBytes, 100}, {kRecordBytes, 253}, {7, 100}, {0, 0}};
    for (const Case& wrong : cases) {
      UniqueFd peer = connect_to(listening.path());
      if (wrong.length > 0) send_to(peer, wrong.length, wrong.descriptors, file.get());
      if (wrong.length == 0) shutdown(peer.get(), SHUT_WR);
      CHECK_EQ(receive_from(peer), "");
    }
    CHECK_EQ(listening.listener->stats().malformed, cases.size());
    CHECK_EQ(listening.listener->take().size(), 0u);
    CHECK_EQ(open_descriptors(), before + 1);
  }
  CHECK_EQ(open_descriptors(), descriptors);
}

TEST(listener_silent, "listener: who sends nothing, and who is not answered, is let go after a time") {
  Listening listening(16, 20);
  const UniqueFd silent = connect_to(listening.path());
  const UniqueFd waiting = connect_to(listening.path());
  send_to(waiting, kRecordBytes);
  CHECK_EQ(receive_from(silent), "");
  CHECK_EQ(receive_from(waiting), "");
  CHECK_EQ(listening.listener->stats().timed_out, 2u);
  CHECK_EQ(listening.listener->stats().malformed, 0u);
}

TEST(listener_full, "listener: above the limit connections are closed at once, and there is room when others end") {
  Listening listening(3);
  std::vector<UniqueFd> peers;
  for (int i = 0; i < 3; i++) peers.push_back(connect_to(listening.path()));
  for (int i = 0; i < 5; i++) CHECK_EQ(receive_from(connect_to(listening.path())), "");
  CHECK_EQ(listening.listener->stats().refused, 5u);
  CHECK_EQ(listening.listener->stats().connections, 3u);
  send_to(peers[1], kRecordBytes);
  listening.listener->reply(listening.record().connection, "done", 4, -1);
  CHECK_EQ(receive_from(peers[1]), "done");
  const UniqueFd late = connect_to(listening.path());
  send_to(late, kRecordBytes);
  listening.listener->reply(listening.record().connection, "done", 4, -1);
  CHECK_EQ(receive_from(late), "done");
}

TEST(listener_close, "listener: its end closes everything and removes its own file, not another one's") {
  const size_t descriptors = open_descriptors();
  {
    Listening listening;
    const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const UniqueFd silent = connect_to(listening.path());
    const UniqueFd waiting = connect_to(listening.path());
    send_to(waiting, kRecordBytes, 1, file.get());
    const DescriptorRecord record = listening.record();
    const UniqueFd untaken = connect_to(listening.path());
    send_to(untaken, kRecordBytes, 1, file.get());
    listening.listener->close();
    listening.listener->close();
    CHECK_EQ(access(listening.path().c_str(), F_OK), -1);
    listening.listener->reply(record.connection, "late", 4, -1);
    for (const UniqueFd* peer : {&silent, &waiting, &untaken}) CHECK_EQ(receive_from(*peer), "");

    auto first = std::make_unique<DescriptorListener>(listening.options(), [] {});
    unlink(listening.path().c_str());
    DescriptorListener second(listening.options(), [] {});
    first = nullptr;
    CHECK_EQ(access(listening.path().c_str(), F_OK), 0);
  }
  CHECK_EQ(open_descriptors(), descriptors);
}

TEST(listener_file, "listener: its file has the mode asked for, whatever the umask, and a taken path is refused") {
  const size_t descriptors = open_descriptors();
  {
    Listening listening;
    struct stat status {};
    CHECK_EQ(stat(listening.path().c_str(), &status), 0);
    CHECK_EQ(status.st_mode & 0777, 0640u);
    const auto error_of = [](DescriptorListenerOptions options) {
      try {
        DescriptorListener another(std::move(options), [] {});
      } catch (const SystemError& error) {
        return error.errnum;
      }
      return 0;
    };
    DescriptorListenerOptions options = listening.options();
    CHECK_EQ(error_of(options), EADDRINUSE);
    CHECK_EQ(access(listening.path().c_str(), F_OK), 0);
    options.path = "/nowhere/fds";
    CHECK_EQ(error_of(options), ENOENT);
    options.path = std::string(200, 'x');
    CHECK_EQ(error_of(options), ENAMETOOLONG);
    for (const std::string& path : {std::string(), std::string("a\0b", 3)}) {
      options.path = path;
      CHECK_EQ(error_of(options), EINVAL);
    }
  }
  CHECK_EQ(open_descriptors(), descriptors);
}

TEST(listener_storm, "listener: many peers at once, of every kind, end as they must, and nothing is left of them") {
  const size_t descriptors = open_descriptors();
  {
    Listening listening(32);
    const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    std::atomic<bool> ends{false};
    std::thread answering([&] {
      while (!ends) {
        for (const DescriptorRecord& record : listening.listener->take()) {
          listening.listener->reply(record.connection, "ok", 2, record.fd.get());
        }
        std::this_thread::yield();
      }
    });
    std::vector<std::thread> peers;
    for (size_t i = 0; i < 4; i++) {
      peers.emplace_back([&, i] {
        std::mt19937_64 random(seed + i);
        for (int round = 0; round < 100; round++) {
          const UniqueFd peer = connect_to(listening.path());
          const size_t kind = random() % 4;
          if (kind == 0) continue;
          send_to(peer, kind == 1 ? 1 + random() % 100 : kRecordBytes, random() % 3, file.get());
          if (kind == 3) continue;
          const std::string answer = receive_from(peer);
          if (answer != "" && answer != "ok") fake::misuse("an answer of somebody else");
        }
      });
    }
    for (std::thread& peer : peers) peer.join();
    // There is room as soon as the last of those that hung up are gone.
    std::string answer;
    while (answer.empty()) {
      const UniqueFd last = connect_to(listening.path());
      send_to(last, kRecordBytes);
      answer = receive_from(last);
    }
    CHECK_EQ(answer, "ok");
    ends = true;
    answering.join();
    const DescriptorListenerStats stats = listening.listener->stats();
    CHECK(stats.connections + stats.refused > 400u);
    CHECK_EQ(stats.timed_out, 0u);
  }
  CHECK_EQ(open_descriptors(), descriptors);
}

}  // namespace meshcache::tests
