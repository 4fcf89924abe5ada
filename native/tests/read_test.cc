// Reads: what lands where, and what each operation's outcome is.
#include "../checksum.h"
#include "node.h"

namespace meshcache::tests {

namespace {

using fake::DeviceSpec;
using fake::Fabric;
using fake::Faults;

// Two hosts with one device each: "a" at 10.0.0.1 reads, "b" at 10.0.0.2 serves.
struct Pair {
  explicit Pair(uint64_t seed, size_t bytes = 1 << 20, const std::function<void(EngineOptions&)>& change = {},
                const Faults& faults = {}, uint32_t max_message_bytes = 1u << 30)
      : fabric(seed), served(seed, bytes), target(bytes) {
    DeviceSpec a{"a", "10.0.0.1"};
    DeviceSpec b{"b", "10.0.0.2"};
    a.max_message_bytes = max_message_bytes;
    fabric.add_device(a);
    fabric.add_device(b);
    fabric.set_faults(faults);
    owner = std::make_unique<Node>(fabric, std::vector<std::string>{"10.0.0.2"});
    reader = std::make_unique<Node>(fabric, std::vector<std::string>{"10.0.0.1"}, 0, change);
    owner->serve(served, 4711);
    reader->accept(target);
    peer = reader->peer(*owner);
  }

  Read whole(size_t offset, size_t length) const {
    return {peer, served.rkey, served.addr(offset), {{target.addr(offset), length}}};
  }

  void end() {
    reader->close();
    owner->close();
    reader.reset();
    owner.reset();
    check_clean(fabric);
  }

  Fabric fabric;
  Served served;
  Target target;
  std::unique_ptr<Node> owner;
  std::unique_ptr<Node> reader;
  uint32_t peer = 0;
};

}  // namespace

TEST(sizes, "reads: of every size, in several pieces, land exactly") {
  Pair pair(seed);
  std::mt19937_64 random(seed);
  for (const size_t length : {1u, 2u, 63u, 64u, 4095u, 4096u, 65537u, 1000000u}) {
    pair.target.clear();
    const size_t from = random() % (pair.served.bytes.size() - length + 1);
    // Pieces in order of the source, spread over the target with gaps.
    Read read{pair.peer, pair.served.rkey, pair.served.addr(from), {}};
    const size_t count = std::min<size_t>(length, 1 + random() % 12);
    size_t at = random() % 16;
    std::vector<std::pair<size_t, size_t>> places;
    size_t left = length;
    for (size_t i = 0; i < count; i++) {
      const size_t take = i + 1 == count ? left : std::max<size_t>(1, left / count);
      places.push_back({at, take});
      read.pieces.push_back({pair.target.addr(at), take});
      at += take + 3;
      left -= take;
    }
    if (at > pair.target.bytes.size()) continue;
    CHECK_EQ(pair.reader->read_one(read), OpStatus::kOk);
    size_t source = from;
    size_t end = 0;
    for (const auto& [place, take] : places) {
      CHECK(pair.target.is_clear(end, place - end));
      CHECK(pair.target.holds(pair.served, source, place, take));
      source += take;
      end = place + take;
    }
    CHECK(pair.target.is_clear(end, pair.target.bytes.size() - end));
  }
  pair.end();
}

TEST(splitting, "reads: larger than read_max_bytes, or than the device's longest message, are split") {
  for (const bool by_device : {false, true}) {
    Pair pair(seed, 1 << 20, [&](EngineOptions& options) { options.read_max_bytes = by_device ? 1u << 22 : 65536; }, {},
              by_device ? 65536 : 1u << 30);
    CHECK_EQ(pair.reader->read_one(pair.whole(0, 1 << 20)), OpStatus::kOk);
    CHECK(pair.target.holds(pair.served, 0, 0, 1 << 20));
    CHECK(pair.fabric.work_requests("a") >= 16);
    pair.end();
  }
}

TEST(local_memory, "reads: into memory that is not registered post nothing") {
  Pair pair(seed);
  CHECK_EQ(pair.reader->read_one(pair.whole(0, 64)), OpStatus::kOk);
  pair.target.clear();
  const uint64_t posted = pair.fabric.work_requests("a");
  Target foreign(4096);
  const size_t length = pair.target.bytes.size();
  const Read bad[] = {
      {pair.peer, pair.served.rkey, pair.served.addr(), {{foreign.addr(), 64}}},
      {pair.peer, pair.served.rkey, pair.served.addr(), {{pair.target.addr(length - 63), 64}}},
      {pair.peer, pair.served.rkey, pair.served.addr(), {{pair.target.addr() - 1, 64}}},
      {pair.peer, pair.served.rkey, pair.served.addr(), {{pair.target.addr(), 64}, {foreign.addr(), 64}}},
      {pair.peer, pair.served.rkey, pair.served.addr(), {{pair.target.addr(64), UINT64_MAX - 8}}},
  };
  for (const Read& read : bad) CHECK_EQ(pair.reader->read_one(read), OpStatus::kBadLocalMemory);
  // Served memory is not to be written.
  pair.reader->serve(pair.served, 99);
  CHECK_EQ(pair.reader->read_one({pair.peer, pair.served.rkey, pair.served.addr(), {{pair.served.addr(), 64}}}),
           OpStatus::kBadLocalMemory);
  CHECK_EQ(pair.fabric.work_requests("a"), posted);
  CHECK(pair.target.is_clear());
  CHECK(foreign.is_clear());
  pair.end();
}

TEST(refused, "reads: of an unknown rkey or out of bounds are refused before they are posted") {
  Pair pair(seed);
  CHECK_EQ(pair.reader->read_one(pair.whole(0, 64)), OpStatus::kOk);
  pair.target.clear();
  const size_t length = pair.served.bytes.size();
  const auto at = [&](uint32_t rkey, uint64_t addr, size_t bytes) {
    return Read{pair.peer, rkey, addr, {{pair.target.addr(), bytes}}};
  };
  const uint32_t rkey = pair.served.rkey;
  for (const Read& read : {at(rkey + 1, pair.served.addr(), 64), at(rkey, pair.served.addr() - 1, 64),
                           at(rkey, pair.served.addr(length - 63), 64), at(rkey, UINT64_MAX - 8, 64),
                           at(0, pair.served.addr(), 64)}) {
    CHECK_EQ(pair.reader->read_one(read), OpStatus::kRefused);
  }
  CHECK(pair.target.is_clear());
  // Known meanwhile: the reader looks again.
  Served later(seed + 1, 4096);
  pair.owner->serve(later, rkey + 1);
  CHECK_EQ(pair.reader->read_one({pair.peer, rkey + 1, later.addr(), {{pair.target.addr(), 4096}}}), OpStatus::kOk);
  CHECK(pair.target.holds(later, 0, 0, 4096));
  CHECK_EQ(pair.reader->engine->stats().lost_connections, 0u);
  pair.end();
}

TEST(mixed_batch, "reads: a batch of many operations to several peers, good and bad, has one result for each") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  std::vector<std::unique_ptr<Served>> served;
  std::vector<std::unique_ptr<Node>> owners;
  for (int i = 0; i < 3; i++) {
    const std::string address = "10.0.0." + std::to_string(2 + i);
    fabric.add_device({"b" + std::to_string(i), address});
    owners.push_back(std::make_unique<Node>(fabric, std::vector<std::string>{address}));
    served.push_back(std::make_unique<Served>(seed + i, 1 << 18));
    owners[i]->serve(*served[i], 100 + i);
  }
  Node reader(fabric, {"10.0.0.1"});
  Target target(512 * 1024);
  reader.accept(target);
  const uint32_t nobody = reader.engine->peer("10.0.0.4", 1);
  std::vector<Read> reads;
  std::vector<OpStatus> expected;
  for (size_t i = 0; i < 512; i++) {
    const size_t from = i % 3;
    const size_t offset = i * 301 % (1 << 17);
    Read read{reader.peer(*owners[from]), served[from]->rkey, served[from]->addr(offset), {{target.addr(i * 1024), 1000}}};
    read.checksum = served[from]->checksum(offset, 1000);
    OpStatus status = OpStatus::kOk;
    if (i % 50 == 7) {
      read.rkey = 5;
      status = OpStatus::kRefused;
    } else if (i % 50 == 9) {
      read.peer = nobody;
      status = OpStatus::kUnreachable;
    } else if (i % 50 == 11) {
      read.checksum ^= 1;
      status = OpStatus::kChecksum;
    }
    reads.push_back(read);
    expected.push_back(status);
  }
  const std::vector<OpStatus> statuses = reader.read(reads);
  for (size_t i = 0; i < reads.size(); i++) {
    CHECK_EQ(statuses[i], expected[i]);
    CHECK(target.is_clear(i * 1024 + 1000, 24));
    if (statuses[i] == OpStatus::kOk) CHECK(target.holds(*served[i % 3], i * 301 % (1 << 17), i * 1024, 1000));
  }
  reader.close();
  owners.clear();
}

TEST(stamps, "reads: bytes that do not end with the stamp asked for are stale, whatever their checksum") {
  Pair pair(seed);
  for (const size_t length : {6u, 7u, 4096u, 16385u, 1u << 20}) {
    Read read = pair.whole(0, length);
    for (size_t i = 0; i < kStampBytes; i++) read.stamp |= uint64_t{pair.served.bytes[length - kStampBytes + i]} << 8 * i;
    CHECK_EQ(pair.reader->read_one(read), OpStatus::kOk);
    read.checksum = pair.served.checksum(0, length);
    // The stamp lies in two pieces.
    read.pieces = {{pair.target.addr(), length - 2}, {pair.target.addr(length - 2), 2}};
    CHECK_EQ(pair.reader->read_one(read), OpStatus::kOk);
    for (const uint64_t bit : {uint64_t{1}, uint64_t{1} << 47}) {
      Read other = read;
      other.stamp ^= bit;
      CHECK_EQ(pair.reader->read_one(other), OpStatus::kStale);
    }
  }
  Read shorter = pair.whole(0, 5);
  shorter.stamp = 1;
  CHECK_EQ(pair.reader->read_one(shorter), OpStatus::kStale);
  CHECK_EQ(pair.reader->engine->stats().stale_ops, 11u);
  CHECK_EQ(pair.reader->engine->stats().checksum_failures, 0u);
  pair.end();
}

TEST(checksums, "reads: bytes without the checksum asked for are not ok, small and large") {
  Pair pair(seed);
  for (const size_t length : {1u, 4096u, 16384u, 16385u, 1u << 20}) {
    Read read = pair.whole(0, length);
    read.checksum = pair.served.checksum(0, length);
    CHECK_EQ(pair.reader->read_one(read), OpStatus::kOk);
    read.checksum ^= 0x80000000;
    CHECK_EQ(pair.reader->read_one(read), OpStatus::kChecksum);
  }
  CHECK_EQ(pair.reader->engine->stats().checksum_failures, 5u);
  pair.end();
}

TEST(casualties, "reads: one that the peer's device denies does not take the others of its queue pair with it") {
  Faults faults;
  faults.nic_delay_us_max = 200;
  faults.flush_delay_us_max = 500;
  Pair pair(seed, 1 << 20, [](EngineOptions& options) { options.queue_pairs_per_peer = 1; }, faults);
  CHECK_EQ(pair.reader->read_one(pair.whole(0, 64)), OpStatus::kOk);
  pair.fabric.fail_completion(IBV_WC_REM_ACCESS_ERR, 10);
  std::vector<Read> reads;
  for (size_t i = 0; i < 32; i++) reads.push_back(pair.whole(i * 4096, 4096));
  const std::vector<OpStatus> statuses = pair.reader->read(reads);
  for (size_t i = 0; i < reads.size(); i++) {
    CHECK_EQ(statuses[i], i == 10 ? OpStatus::kRemoteAccess : OpStatus::kOk);
    if (i != 10) CHECK(pair.target.holds(pair.served, i * 4096, i * 4096, 4096));
  }
  CHECK_EQ(pair.reader->engine->stats().lost_connections, 1u);
  pair.end();
}

TEST(lost_connection, "reads: a connection that ends, its only one, takes none with it unless the peer is silent") {
  for (const ibv_wc_status status : {IBV_WC_WR_FLUSH_ERR, IBV_WC_REM_ABORT_ERR, IBV_WC_GENERAL_ERR, IBV_WC_RETRY_EXC_ERR}) {
    Faults faults;
    faults.nic_delay_us_max = 200;
    faults.flush_delay_us_max = 500;
    Pair pair(seed, 1 << 20, [](EngineOptions& options) { options.queue_pairs_per_peer = 1; }, faults);
    CHECK_EQ(pair.reader->read_one(pair.whole(0, 64)), OpStatus::kOk);
    pair.fabric.fail_completion(status, 10);
    std::vector<Read> reads;
    for (size_t i = 0; i < 32; i++) reads.push_back(pair.whole(i * 4096, 4096));
    const std::vector<OpStatus> statuses = pair.reader->read(reads);
    for (size_t i = 0; i < reads.size(); i++) {
      if (status == IBV_WC_RETRY_EXC_ERR) CHECK_EQ(statuses[i], i < 10 ? OpStatus::kOk : OpStatus::kConnectionLost);
      else CHECK_EQ(statuses[i], OpStatus::kOk);
    }
    CHECK_EQ(pair.reader->engine->stats().lost_connections, 1u);
    pair.end();
  }
}

TEST(every_status, "reads: a completion of any bad status, at any place, fails at most what it must") {
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; status++) {
    Faults faults;
    faults.torn_read = 0.3;
    faults.flush_delay_us_max = 300;
    Pair pair(seed + status, 1 << 17, {}, faults);
    CHECK_EQ(pair.reader->read_one(pair.whole(0, 64)), OpStatus::kOk);
    pair.fabric.fail_completion(static_cast<ibv_wc_status>(status), status % 7);
    std::vector<Read> reads;
    for (size_t i = 0; i < 16; i++) reads.push_back(pair.whole(i * 4096, 4096));
    const std::vector<OpStatus> statuses = pair.reader->read(reads);
    for (size_t i = 0; i < reads.size(); i++) {
      if (statuses[i] == OpStatus::kOk) CHECK(pair.target.holds(pair.served, i * 4096, i * 4096, 4096));
    }
    // It has recovered.
    pair.target.clear();
    CHECK_EQ(pair.reader->read_one(pair.whole(0, 1 << 17)), OpStatus::kOk);
    CHECK(pair.target.holds(pair.served, 0, 0, 1 << 17));
    pair.end();
  }
}

TEST(timeout_drains, "reads: a timeout is reported only after the queue pair is drained") {
  Faults faults;
  faults.flush_delay_us_max = 20000;
  faults.torn_read = 1;
  Pair pair(seed, 1 << 20, {}, faults);
  CHECK_EQ(pair.reader->read_one(pair.whole(0, 64)), OpStatus::kOk);
  pair.target.clear();
  pair.fabric.set_paused("a", true);
  std::vector<Read> reads;
  for (size_t i = 0; i < 16; i++) reads.push_back(pair.whole(i * 65536, 65536));
  const std::vector<OpStatus> statuses = pair.reader->read(reads, 50);
  for (OpStatus status : statuses) CHECK_EQ(status, OpStatus::kTimeout);
  // What lands from here on is a write after the result.
  pair.target.clear();
  pair.fabric.set_paused("a", false);
  CHECK_EQ(pair.fabric.wait([&](Fabric&) { return !pair.target.is_clear(); }, 100), false);
  CHECK_EQ(pair.reader->read_one(pair.whole(0, 1 << 20)), OpStatus::kOk);
  CHECK(pair.target.holds(pair.served, 0, 0, 1 << 20));
  pair.end();
}

TEST(never_completes, "reads: what no device ever completes ends with its queue pair") {
  Faults faults;
  faults.stuck_queue_pair = 1;
  Pair pair(seed, 1 << 16, {}, faults);
  CHECK_EQ(pair.reader->read_one(pair.whole(0, 4096), 300), OpStatus::kTimeout);
  faults.stuck_queue_pair = 0;
  pair.fabric.set_faults(faults);
  OpStatus status = OpStatus::kTimeout;
  for (int i = 0; i < 20 && status != OpStatus::kOk; i++) status = pair.reader->read_one(pair.whole(0, 4096), 1000);
  CHECK_EQ(status, OpStatus::kOk);
  pair.end();
}

TEST(post_fails, "reads: a post that fails in the middle of a chain loses none and repeats none") {
  Faults faults;
  faults.nic_delay_us_max = 50;
  Pair pair(seed, 1 << 18, {}, faults);
  CHECK_EQ(pair.reader->read_one(pair.whole(0, 64)), OpStatus::kOk);
  for (const uint32_t after : {0u, 1u, 5u, 17u}) {
    pair.target.clear();
    pair.fabric.fail_call("post_send", ENOMEM, after);
    std::vector<Read> reads;
    for (size_t i = 0; i < 64; i++) reads.push_back(pair.whole(i * 4096, 4096));
    const std::vector<OpStatus> statuses = pair.reader->read(reads);
    for (size_t i = 0; i < reads.size(); i++) {
      CHECK_EQ(statuses[i], OpStatus::kOk);
      CHECK(pair.target.holds(pair.served, i * 4096, i * 4096, 4096));
    }
  }
  pair.end();
}

TEST(registering, "memory: registered and withdrawn while reads of it and into it are under way") {
  Faults faults;
  faults.nic_delay_us_max = 300;
  faults.torn_read = 0.2;
  Pair pair(seed, 1 << 18, {}, faults);
  for (uint32_t round = 0; round < 40; round++) {
    auto into = std::make_unique<Target>(65536);
    auto extra = std::make_unique<Served>(seed + round, 65536);
    pair.reader->accept(*into);
    pair.owner->serve(*extra, 10000 + round);
    std::vector<Read> reads;
    for (size_t i = 0; i < 16; i++) {
      reads.push_back({pair.peer, extra->rkey, extra->addr(i * 4096), {{into->addr(i * 4096), 4096}}});
    }
    const uint64_t batch = pair.reader->start(reads);
    if (round % 2 == 0) pair.owner->withdraw(extra->handle);
    if (round % 3 == 0) pair.reader->withdraw(into->handle);
    // From now on nothing may land in it, whatever the batch says.
    std::vector<uint8_t> as_withdrawn;
    if (round % 3 == 0) as_withdrawn = into->bytes;
    const std::vector<OpStatus> statuses = pair.reader->result(batch);
    for (size_t i = 0; i < reads.size(); i++) {
      if (statuses[i] == OpStatus::kOk) CHECK(into->holds(*extra, i * 4096, i * 4096, 4096));
      else CHECK(round % 2 == 0 || round % 3 == 0);
    }
    if (round % 3 == 0) CHECK(into->bytes == as_withdrawn);
    if (round % 2 != 0) pair.owner->withdraw(extra->handle);
    if (round % 3 != 0) pair.reader->withdraw(into->handle);
    // Both go back to the heap here: who writes into them later is caught by the address sanitizer.
  }
  CHECK_EQ(pair.reader->read_one(pair.whole(0, 1 << 18)), OpStatus::kOk);
  pair.end();
}

TEST(registrations, "memory: a failed registration leaves nothing, an rkey in use is refused") {
  Pair pair(seed);
  const uint64_t before = pair.fabric.live("mr");
  Target more(4096);
  pair.fabric.fail_call("reg_mr", ENOMEM);
  int errnum = 0;
  try {
    pair.reader->accept(more);
  } catch (const VerbsError& error) {
    errnum = error.errnum;
  }
  CHECK_EQ(errnum, ENOMEM);
  CHECK_EQ(pair.fabric.live("mr"), before);
  Served again(1, 4096);
  bool is_refused = false;
  try {
    pair.owner->serve(again, pair.served.rkey);
  } catch (const VerbsError&) {
    is_refused = true;
  }
  CHECK(is_refused);
  CHECK_EQ(pair.fabric.live("mr"), before);
  pair.end();
}

TEST(full_table, "memory: as many published regions as the limit says, and not one more") {
  Pair pair(seed, 4096);
  std::vector<uint32_t> handles;
  Served many(seed, kMaxPublishedRegions * 64);
  for (uint32_t i = 1; i < kMaxPublishedRegions; i++) {
    handles.push_back(pair.owner->engine->register_mr(many.addr(i * 64), 64, 100000 + i, kAccessRemoteRead).handle);
  }
  bool is_refused = false;
  try {
    pair.owner->engine->register_mr(many.addr(), 64, 100000, kAccessRemoteRead);
  } catch (const VerbsError&) {
    is_refused = true;
  }
  CHECK(is_refused);
  const size_t last = kMaxPublishedRegions - 1;
  const auto last_rkey = static_cast<uint32_t>(100000 + last);
  CHECK_EQ(pair.reader->read_one({pair.peer, last_rkey, many.addr(last * 64), {{pair.target.addr(), 64}}}), OpStatus::kOk);
  CHECK(pair.target.holds(many, last * 64, 0, 64));
  for (uint32_t handle : handles) pair.owner->withdraw(handle);
  pair.end();
}

TEST(close_midway, "closing: during reads ends each of them once, and at once") {
  for (int round = 0; round < 10; round++) {
    Faults faults;
    faults.nic_delay_us_max = 1000;
    faults.flush_delay_us_max = 1000;
    faults.torn_read = 0.5;
    Pair pair(seed + round, 1 << 18, {}, faults);
    if (round % 2 == 0) CHECK_EQ(pair.reader->read_one(pair.whole(0, 64)), OpStatus::kOk);
    std::vector<Read> reads;
    for (size_t i = 0; i < 64; i++) reads.push_back(pair.whole(i * 4096, 4096));
    const uint64_t first = pair.reader->start(reads);
    const uint64_t second = pair.reader->start(reads);
    if (round % 3 == 0) pair.owner->close();
    pair.reader->close(3000);
    for (uint64_t batch : {first, second}) pair.reader->result(batch);
    const std::vector<OpStatus> late = pair.reader->read(reads);
    for (OpStatus status : late) CHECK_EQ(status, OpStatus::kClosed);
    pair.end();
  }
}

}  // namespace meshcache::tests
