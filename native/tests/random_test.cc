// Random plans of faults. Whatever happens: every batch is reported once and in time, what is ok has the right bytes,
// nothing is written outside of the destination or after the report, and in the end everything is released.
#include "node.h"

namespace meshcache::tests {

namespace {

using fake::Fabric;
using fake::Faults;

constexpr size_t kBytes = 1 << 16;
constexpr size_t kPage = 1024;
constexpr size_t kSlot = kPage + 32;  // with a gap that stays clear
constexpr size_t kSlots = 48;
constexpr uint32_t kTimeoutMs = 250;

class Plan {
 public:
  explicit Plan(uint64_t seed) : fabric_(seed), random_(seed) {
    for (const char* name : {"a0", "a1", "b0", "b1", "c0"}) {
      fabric_.add_device({name, std::string("10.0.") + name[1] + "." + std::to_string(name[0] - 'a' + 1)});
    }
  }

  void run(int rounds) {
    {
      start_reader();
      for (int owner = 0; owner < 2; owner++) start_owner(owner);
      for (int round = 0; round < rounds; round++) {
        fabric_.set_faults(draw_faults());
        one_round();
      }
      recover();
      reader_->close();
      reader_.reset();
      for (auto& owner : owners_) owner.reset();
    }
    check_clean(fabric_);
    CHECK(ok_count_ > 0);
  }

 private:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  // A few kinds of fault at a time: with all of them nothing ever works, and little is seen.
  Faults draw_faults() {
    Faults faults;
    faults.nic_delay_us_max = below(3) * 100;
    faults.network_delay_us_max = below(3) * 300;
    faults.flush_delay_us_max = below(3) * 500;
    faults.retry_us = 500 + below(20000);
    faults.torn_read = below(2) * 0.3;
    faults.stale_completions = below(2) == 0;
    for (int i = 0; i < 2; i++) {
      switch (below(8)) {
        case 0: faults.call_failure = 0.1; break;
        case 1: faults.post_failure = 0.05; break;
        case 2: faults.completion_error = 0.03; break;
        case 3: faults.stuck_queue_pair = 0.3; break;
        case 4: faults.message_loss = 0.15; break;
        case 5: faults.odd_event = 0.15; break;
        case 6: faults.async_event = 0.5; break;
        default: break;
      }
    }
    return faults;
  }

  template <class Make>
  void until_made(Make make) {
    for (int i = 0;; i++) {
      try {
        return make();
      } catch (const VerbsError&) {
        CHECK(i < 500);
      }
    }
  }

  void start_reader() {
    until_made([&] {
      reader_ = std::make_unique<Node>(fabric_, std::vector<std::string>{"10.0.0.1", "10.0.1.1"}, 0, [](EngineOptions& options) {
        options.connect_timeout_ms = 100;
        options.stall_timeout_ms = 100;
        options.read_max_bytes = 700;
        options.queue_depth = 8;
        options.idle_probe_ms = 40;
      });
    });
    until_made([&] { reader_->accept(target_); });
  }

  void start_owner(int which) {
    const std::vector<std::string> addresses =
        which == 0 ? std::vector<std::string>{"10.0.0.2", "10.0.1.2"} : std::vector<std::string>{"10.0.0.3"};
    until_made([&] {
      owners_[which] = std::make_unique<Node>(fabric_, addresses, ports_[which], [](EngineOptions& options) {
        options.connect_timeout_ms = 100;
        options.stall_timeout_ms = 100;
        options.idle_probe_ms = 40;
      });
    });
    // The one with a single rail comes back on its port, the other on any.
    if (addresses.size() == 1) ports_[which] = owners_[which]->port();
    served_[which] = std::make_unique<Served>(next_rkey_, kBytes);
    until_made([&] { owners_[which]->serve(*served_[which], next_rkey_); });
    next_rkey_++;
  }

  // Something that happens to the world while reads are under way.
  void disturb() {
    const char* const devices[] = {"a0", "a1", "b0", "b1", "c0"};
    const char* device = devices[below(5)];
    switch (below(9)) {
      case 0:
        fabric_.disconnect_all(device);
        break;
      case 1:
        fabric_.set_link(device, false);
        down_.insert(device);
        break;
      case 2:
        fabric_.set_stalled(device, true);
        stalled_.insert(device);
        break;
      case 3:
        fabric_.inject_async(device, IBV_EVENT_QP_FATAL);
        break;
      case 4:
        fabric_.inject_cm(device, RDMA_CM_EVENT_DISCONNECTED, 0);
        break;
      case 5: {
        const int which = static_cast<int>(below(2));
        owners_[which].reset();
        start_owner(which);
        break;
      }
      default:
        break;
    }
  }

  void one_round() {
    target_.clear();
    struct Asked {
      uint64_t content_seed;  // an owner that restarts serves other bytes
      size_t offset;
      bool is_good;
    };
    std::vector<Asked> asked;
    std::vector<uint64_t> batches;
    for (int batch = 0; batch < 4; batch++) {
      std::vector<Read> reads;
      for (size_t i = 0; i < kSlots / 4; i++) {
        const size_t slot = batch * (kSlots / 4) + i;
        const uint32_t which = below(2);
        const Served& served = *served_[which];
        const Asked each{served.seed, below(kBytes - kPage), below(10) > 0};
        Read read{reader_->peer(*owners_[which]), served.rkey, served.addr(each.offset), {{target_.addr(slot * kSlot), kPage}}};
        read.pieces = {{target_.addr(slot * kSlot), 100}, {target_.addr(slot * kSlot + 100), kPage - 100}};
        if (below(2) == 0) read.checksum = served.checksum(each.offset, kPage);
        if (!each.is_good) read.rkey = 1;
        reads.push_back(read);
        asked.push_back(each);
      }
      batches.push_back(reader_->start(reads, kTimeoutMs));
      if (below(3) == 0) disturb();
    }
    std::vector<OpStatus> statuses;
    for (uint64_t batch : batches) {
      // The time it has, that of a connection attempt, and that of draining.
      for (OpStatus status : reader_->result(batch, kTimeoutMs + 5000)) statuses.push_back(status);
    }
    for (size_t slot = 0; slot < kSlots; slot++) {
      const Asked& each = asked[slot];
      CHECK(target_.is_clear(slot * kSlot + kPage, kSlot - kPage));
      if (statuses[slot] == OpStatus::kOk) {
        CHECK(each.is_good);
        for (size_t i = 0; i < kPage; i++) CHECK(target_.bytes[slot * kSlot + i] == content(each.content_seed, each.offset + i));
        ok_count_++;
      }
      CHECK(statuses[slot] != OpStatus::kBadLocalMemory && statuses[slot] != OpStatus::kClosed);
    }
    // All is reported: nothing lands any more, whatever is on the wire still.
    target_.clear();
    for (const std::string& device : down_) fabric_.set_link(device, true);
    for (const std::string& device : stalled_) fabric_.set_stalled(device, false);
    down_.clear();
    stalled_.clear();
    fabric_.wait([&](Fabric&) { return !target_.is_clear(); }, 5);
    CHECK(target_.is_clear());
  }

  void recover() {
    Faults none;
    fabric_.set_faults(none);
    for (int which = 0; which < 2; which++) {
      const Served& served = *served_[which];
      const Read read{reader_->peer(*owners_[which]), served.rkey, served.addr(), {{target_.addr(), kPage}}};
      OpStatus status = OpStatus::kTimeout;
      for (int i = 0; i < 40 && status != OpStatus::kOk; i++) status = reader_->read_one(read, 500);
      CHECK_EQ(status, OpStatus::kOk);
      CHECK(target_.holds(served, 0, 0, kPage));
    }
  }

  Fabric fabric_;
  std::mt19937_64 random_;
  Target target_{kSlots * kSlot};
  std::unique_ptr<Served> served_[2];
  std::unique_ptr<Node> owners_[2];
  std::unique_ptr<Node> reader_;
  uint16_t ports_[2] = {0, 0};
  uint32_t next_rkey_ = 1000;
  uint64_t ok_count_ = 0;
  std::set<std::string> down_;
  std::set<std::string> stalled_;
};

}  // namespace

TEST(random_faults, "random: faults of all kinds, in any order") {
  for (uint64_t i = 0; i < 6; i++) Plan(seed * 1000 + i).run(12);
}

}  // namespace meshcache::tests
