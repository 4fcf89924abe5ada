// Owners that withdraw memory, do not let in or are slow: what a reader tries again, and for how long.
#include <chrono>
#include <functional>
#include <thread>

#include "../verbs/region_table.h"
#include "node.h"
#include "objects.h"

namespace meshcache::tests {

namespace {

using fake::Fabric;
using fake::Faults;

constexpr size_t kBytes = 1 << 18;

// Whether it holds within some seconds.
bool becomes(const std::function<bool()>& holds) {
  for (int tries = 0; tries < 5000 && !holds(); tries++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

Read whole(Node& reader, const Node& owner, const Served& served, const Target& target) {
  return {reader.peer(owner), served.rkey, served.addr(), {{target.addr(), kBytes}}};
}

}  // namespace

TEST(cut_off, "withdrawals: cut off who is connecting, at any moment of it, and cost no read of the memory that stays") {
  Faults faults;
  faults.network_delay_us_max = 4000;
  faults.retry_us = 1000000;  // the peer's word comes before a device takes it for silent
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  fabric.set_faults(faults);
  Served served(seed, kBytes);
  Served gone(seed + 1, 4096);
  Target target(kBytes);
  Node owner(fabric, {"10.0.0.2"});
  owner.serve(served, 5);
  std::mt19937_64 random(seed);
  for (uint32_t round = 0; round < 60; round++) {
    Node reader(fabric, {"10.0.0.1"}, 0, [&](EngineOptions& options) { options.queue_pairs_per_peer = 1 + round % 2; });
    reader.accept(target);
    owner.serve(gone, 100 + round);
    const uint64_t accepted = fabric.calls("accept");
    const uint64_t batch = reader.start(std::vector<Read>(4, whole(reader, owner, served, target)));
    if (round % 3 == 0) {
      // The owner has answered, the reader may not know it yet.
      CHECK(fabric.wait([&](Fabric& each) { return each.calls("accept") > accepted; }, 5000));
    } else if (round % 3 == 1) {
      // The reader is connected, the owner may not know it yet.
      CHECK(becomes([&] { return reader.engine->stats().connects > 0; }));
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 12000));
    }
    owner.withdraw(gone.handle);
    for (OpStatus status : reader.result(batch)) CHECK_EQ(status, OpStatus::kOk);
    CHECK(target.holds(served, 0, 0, kBytes));
    CHECK(reader.engine->stats().connections <= 1 + round % 2);
    reader.close();
  }
}

TEST(many_withdrawals, "withdrawals: many in a row cost no read of the memory that stays") {
  Faults faults;
  faults.nic_delay_us_max = 500;
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  fabric.set_faults(faults);
  Served served(seed, kBytes);
  Served gone(seed + 1, 4096);
  Target target(kBytes);
  Node owner(fabric, {"10.0.0.2"});
  Node reader(fabric, {"10.0.0.1"}, 0, [](EngineOptions& options) { options.read_max_bytes = 4096; });
  owner.serve(served, 5);
  reader.accept(target);
  const uint64_t batch = reader.start({whole(reader, owner, served, target)}, 10000);
  for (uint32_t round = 0; round < 12; round++) {
    owner.serve(gone, 100 + round);
    // A table, and some of the 64 requests of the read.
    const uint64_t done = fabric.work_requests("a");
    if (!fabric.wait([&](Fabric& each) { return each.work_requests("a") >= done + 6; }, 1000)) break;
    owner.withdraw(gone.handle);
  }
  CHECK_EQ(reader.result(batch).at(0), OpStatus::kOk);
  CHECK(target.holds(served, 0, 0, kBytes));
}

TEST(never_let_in, "connecting: a peer that answers and lets nobody in is tried again, and not for ever") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  Served served(seed, kBytes);
  Target target(kBytes);
  Node owner(fabric, {"10.0.0.2"});
  Node reader(fabric, {"10.0.0.1"}, 0, [](EngineOptions& options) { options.queue_pairs_per_peer = 1; });
  owner.serve(served, 5);
  reader.accept(target);
  fabric.fail_call("accept", ENOMEM, 0, 3);
  CHECK_EQ(reader.read_one(whole(reader, owner, served, target)), OpStatus::kOk);
  owner.close();
  Node other(fabric, {"10.0.0.2"});
  other.serve(served, 5);
  fabric.fail_call("accept", ENOMEM, 0, 1000);
  const uint64_t connects = fabric.calls("connect");
  // Well before the end of its time, twice: who comes later has as many tries.
  for (int i = 1; i <= 2; i++) {
    CHECK_EQ(reader.read_one(whole(reader, other, served, target), 20000), OpStatus::kUnreachable);
    CHECK_EQ(fabric.calls("connect"), connects + 8 * i);
  }
}

TEST(torn_table, "region table: one that is torn for a while is read until it is whole, one that stays so is none") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  Served served(seed, kBytes);
  Target target(kBytes);
  Node owner(fabric, {"10.0.0.2"});
  owner.serve(served, 5);
  Node reader(fabric, {"10.0.0.1"});
  reader.accept(target);
  const auto tear = [&] {
    std::lock_guard<std::mutex> lock(fabric.mutex);
    for (const auto& [serial, mr] : fabric.mrs) {
      const bool is_table = mr->access == IBV_ACCESS_REMOTE_READ && mr->addr != served.bytes.data();
      if (is_table && mr->context == fabric.device_at("10.0.0.2")) static_cast<TableLayout*>(mr->addr)->checksum ^= 1;
    }
  };
  tear();
  uint64_t batch = reader.start({whole(reader, owner, served, target)});
  CHECK(becomes([&] { return reader.engine->stats().region_table_reads > 70; }));
  tear();
  CHECK_EQ(reader.result(batch).at(0), OpStatus::kOk);
  tear();
  // An rkey that is new to the reader.
  Read later = whole(reader, owner, served, target);
  later.rkey = 6;
  const uint64_t before = reader.engine->stats().region_table_reads;
  CHECK_EQ(reader.read_one(later), OpStatus::kRejected);
  CHECK(reader.engine->stats().region_table_reads < before + 300);
  CHECK(reader.has_event(EventKind::kRejected));
  tear();
  CHECK_EQ(reader.read_one(whole(reader, owner, served, target)), OpStatus::kOk);
}

}  // namespace meshcache::tests
