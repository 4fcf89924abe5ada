// Connections: tokens, limits, rails, peers that go and come back.
#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "node.h"

namespace meshcache::tests {

namespace {

using fake::Fabric;
using fake::Faults;

constexpr size_t kBytes = 1 << 18;

Token token_of(uint8_t number) {
  Token token;
  for (size_t i = 0; i < kTokenBytes; i++) {
    token.request[i] = static_cast<uint8_t>(number + i);
    token.reply[i] = static_cast<uint8_t>(number * 3 + i + 1);
  }
  return token;
}

std::function<void(EngineOptions&)> with_tokens(std::vector<Token> tokens) {
  return [tokens](EngineOptions& options) { options.tokens = tokens; };
}

// Whether it holds within a second.
bool becomes(const std::function<bool()>& holds) {
  for (int tries = 0; tries < 1000 && !holds(); tries++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

Read whole(Node& reader, const Node& owner, const Served& served, const Target& target, size_t length = kBytes) {
  return {reader.peer(owner), served.rkey, served.addr(), {{target.addr(), length}}};
}

// Until a read is ok; what comes before it is forgiven.
bool recovers(Node& reader, const Read& read, int tries = 40) {
  for (int i = 0; i < tries; i++) {
    if (reader.read_one(read, 1000) == OpStatus::kOk) return true;
  }
  return false;
}

}  // namespace

TEST(tokens, "tokens: who has another or none is rejected before there is a queue pair, and so is who answers with another") {
  const Token right = token_of(1);
  const Token wrong = token_of(100);
  Token half = right;  // shows the right one, answers with another
  half.reply[31] ^= 1;
  struct Case {
    std::vector<Token> reader;
    std::vector<Token> owner;
    OpStatus expected;
    bool is_refused_early;
  };
  const Case cases[] = {
      {{right}, {right}, OpStatus::kOk, false},
      {{right}, {wrong, right}, OpStatus::kOk, false},
      {{wrong}, {right}, OpStatus::kRejected, true},
      {{}, {right}, OpStatus::kRejected, true},
      {{right}, {}, OpStatus::kRejected, false},
      {{right}, {half}, OpStatus::kRejected, false},
      {{}, {}, OpStatus::kOk, false},
  };
  for (const Case& each : cases) {
    Fabric fabric(seed);
    fabric.add_device({"a", "10.0.0.1"});
    fabric.add_device({"b", "10.0.0.2"});
    Served served(seed, kBytes);
    Target target(kBytes);
    Node owner(fabric, {"10.0.0.2"}, 0, with_tokens(each.owner));
    Node reader(fabric, {"10.0.0.1"}, 0, with_tokens(each.reader));
    owner.serve(served, 3);
    reader.accept(target);
    CHECK_EQ(reader.read_one(whole(reader, owner, served, target)), each.expected);
    CHECK_EQ(target.is_clear(), each.expected != OpStatus::kOk);
    // Only the reader's own queue pairs were made: one for each try.
    if (each.is_refused_early) {
      CHECK_EQ(fabric.calls("create_qp"), fabric.calls("connect"));
      CHECK_EQ(fabric.calls("accept"), 0u);
      // The reader may know before the owner has counted it.
      CHECK(becomes([&] { return owner.engine->stats().refused_connections == fabric.calls("connect"); }));
      CHECK(becomes([&] { return reader.has_event(EventKind::kRejected) && owner.has_event(EventKind::kRejectedPeer); }));
    }
    reader.close();
    owner.close();
  }
}

TEST(other_tokens, "tokens: others count for connections that are made from then on") {
  const Token former = token_of(1);
  const Token later = token_of(100);
  Fabric fabric(seed);
  for (int i = 1; i <= 4; i++) fabric.add_device({"d" + std::to_string(i), "10.0.0." + std::to_string(i)});
  Served served(seed, kBytes);
  Node owner(fabric, {"10.0.0.1"}, 0, with_tokens({former}));
  owner.serve(served, 3);
  const auto read_as = [&](const std::string& address, const Token& token) {
    Target target(kBytes);
    Node reader(fabric, {address}, 0, with_tokens({token}));
    reader.accept(target);
    const OpStatus status = reader.read_one(whole(reader, owner, served, target));
    reader.close();
    return status;
  };
  Target kept(kBytes);
  Node old_reader(fabric, {"10.0.0.2"}, 0, with_tokens({former}));
  old_reader.accept(kept);
  CHECK_EQ(old_reader.read_one(whole(old_reader, owner, served, kept)), OpStatus::kOk);
  CHECK_EQ(read_as("10.0.0.3", later), OpStatus::kRejected);
  owner.engine->set_tokens({later});
  CHECK_EQ(read_as("10.0.0.3", later), OpStatus::kOk);
  CHECK_EQ(read_as("10.0.0.4", former), OpStatus::kRejected);
  kept.clear();
  CHECK_EQ(old_reader.read_one(whole(old_reader, owner, served, kept)), OpStatus::kOk);
  old_reader.close();
  owner.close();
}

TEST(accepted_limit, "limits: no more connections are accepted than accepted_max_count, and room is given back") {
  Fabric fabric(seed);
  for (int i = 1; i <= 5; i++) fabric.add_device({"d" + std::to_string(i), "10.0.0." + std::to_string(i)});
  Served served(seed, kBytes);
  Node owner(fabric, {"10.0.0.1"}, 0, [](EngineOptions& options) { options.accepted_max_count = 3; });
  owner.serve(served, 3);
  std::vector<std::unique_ptr<Node>> readers;
  std::vector<std::unique_ptr<Target>> targets;
  unsigned ok = 0;
  for (int i = 2; i <= 5; i++) {
    readers.push_back(std::make_unique<Node>(fabric, std::vector<std::string>{"10.0.0." + std::to_string(i)}, 0,
                                             [](EngineOptions& options) { options.queue_pairs_per_peer = 1; }));
    targets.push_back(std::make_unique<Target>(kBytes));
    readers.back()->accept(*targets.back());
    const OpStatus status = readers.back()->read_one(whole(*readers.back(), owner, served, *targets.back()));
    if (status == OpStatus::kOk) ok++;
    else CHECK_EQ(status, OpStatus::kRejected);
  }
  CHECK_EQ(ok, 3u);
  CHECK_EQ(owner.engine->stats().accepted_connections, 3u);
  readers.front().reset();
  CHECK(recovers(*readers.back(), whole(*readers.back(), owner, served, *targets.back())));
  readers.clear();
}

TEST(small_device, "limits: a device with few places in its queues is not asked for more than it has") {
  Fabric fabric(seed);
  fake::DeviceSpec small{"a", "10.0.0.1"};
  small.max_qp_wr = 8;
  small.max_cqe = 40;
  small.max_sge = 1;
  small.max_read_depth = 1;
  fabric.add_device(small);
  Served served(seed, kBytes);
  Target target(kBytes);
  std::vector<std::unique_ptr<Node>> owners;
  Node reader(fabric, {"10.0.0.1"});
  reader.accept(target);
  unsigned ok = 0;
  for (int i = 2; i <= 6; i++) {
    const std::string address = "10.0.0." + std::to_string(i);
    fabric.add_device({"d" + std::to_string(i), address});
    owners.push_back(std::make_unique<Node>(fabric, std::vector<std::string>{address}));
    owners.back()->serve(served, 3);
    std::vector<Read> reads;
    for (size_t page = 0; page < 64; page++) {
      const size_t at = page * 4096;
      reads.push_back({reader.peer(*owners.back()), 3, served.addr(at), {{target.addr(at), 100}, {target.addr(at + 100), 3996}}});
    }
    const std::vector<OpStatus> statuses = reader.read(reads);
    if (std::count(statuses.begin(), statuses.end(), OpStatus::kOk) == 64) ok++;
  }
  CHECK(ok >= 2);
  reader.close();
}

TEST(nobody, "connecting: to where nobody listens, or no device is, is unreachable, and costs no more than its time") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  Node reader(fabric, {"10.0.0.1"});
  Target target(4096);
  reader.accept(target);
  for (const char* host : {"10.0.0.2", "10.0.0.3", "not an address"}) {
    const uint32_t peer = reader.engine->peer(host, 9);
    CHECK_EQ(reader.read_one({peer, 1, 4096, {{target.addr(), 64}}}, 3000), OpStatus::kUnreachable);
  }
  fabric.set_stalled("b", true);
  CHECK_EQ(reader.read_one({reader.engine->peer("10.0.0.2", 9), 1, 4096, {{target.addr(), 64}}}, 3000), OpStatus::kUnreachable);
  reader.close();
  CHECK_EQ(fabric.live("id"), 1u);  // the listener, until the engine itself goes
}

TEST(same_peer, "connecting: one peer number for one address; many readers of one address share its connections") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  Served served(seed, kBytes);
  Target target(kBytes);
  Node owner(fabric, {"10.0.0.2"});
  Node reader(fabric, {"10.0.0.1"});
  owner.serve(served, 3);
  reader.accept(target);
  CHECK_EQ(reader.peer(owner), reader.peer(owner));
  std::vector<uint64_t> batches;
  for (size_t i = 0; i < 64; i++) {
    batches.push_back(reader.start({{reader.peer(owner), 3, served.addr(i * 4096), {{target.addr(i * 4096), 4096}}}}));
  }
  for (uint64_t batch : batches) CHECK_EQ(reader.result(batch).at(0), OpStatus::kOk);
  CHECK(target.holds(served, 0, 0, kBytes));
  CHECK(reader.engine->stats().connections <= 2);
  reader.close();
  owner.close();
}

TEST(both_ways, "connecting: two engines read from each other at the same time") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "fd00::2"});
  fabric.add_device({"c", "10.0.0.2"});
  Served first(seed, kBytes);
  Served second(seed + 1, kBytes);
  Target into_first(kBytes);
  Target into_second(kBytes);
  Node one(fabric, {"10.0.0.1"});
  Node two(fabric, {"10.0.0.2"});
  one.serve(first, 7);
  two.serve(second, 7);
  one.accept(into_first);
  two.accept(into_second);
  const uint64_t there = one.start({whole(one, two, second, into_first)});
  const uint64_t back = two.start({whole(two, one, first, into_second)});
  CHECK_EQ(one.result(there).at(0), OpStatus::kOk);
  CHECK_EQ(two.result(back).at(0), OpStatus::kOk);
  CHECK(into_first.holds(second, 0, 0, kBytes));
  CHECK(into_second.holds(first, 0, 0, kBytes));
}

TEST(itself, "connecting: an engine reads its own memory; IPv6") {
  Fabric fabric(seed);
  fabric.add_device({"a", "fd00::1"});
  Served served(seed, kBytes);
  Target target(kBytes);
  Node node(fabric, {"fd00::1"});
  node.serve(served, 7);
  node.accept(target);
  CHECK_EQ(node.read_one(whole(node, node, served, target)), OpStatus::kOk);
  CHECK(target.holds(served, 0, 0, kBytes));
}

TEST(restart, "restart: a peer on the same address and port with new rkeys; the old rkeys never match again") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  Target target(kBytes);
  Node reader(fabric, {"10.0.0.1"});
  reader.accept(target);
  uint16_t port = 0;
  for (uint32_t round = 0; round < 8; round++) {
    Served served(seed + round, kBytes);
    Node owner(fabric, {"10.0.0.2"}, port);
    port = owner.port();
    owner.serve(served, 100 + round);
    CHECK(recovers(reader, whole(reader, owner, served, target)));
    CHECK(target.holds(served, 0, 0, kBytes));
    target.clear();
    Read old = whole(reader, owner, served, target);
    old.rkey = 99 + round;
    CHECK_EQ(reader.read_one(old), OpStatus::kRefused);
    CHECK(target.is_clear());
    // It goes while reads are under way, or while nothing is.
    if (round % 2 == 0) reader.start(std::vector<Read>(20, whole(reader, owner, served, target)));
  }
  CHECK_EQ(reader.read_one({reader.engine->peer("10.0.0.2", port), 1, 4096, {{target.addr(), 64}}}), OpStatus::kUnreachable);
  reader.close();
}

TEST(host_lost, "peers: whose host falls silent in the middle of reads fail within the deadline, their buffers untouched after") {
  Faults faults;
  faults.nic_delay_us_max = 500;
  faults.retry_us = 100000;
  faults.torn_read = 0.5;
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  fabric.set_faults(faults);
  Served served(seed, kBytes);
  Target target(kBytes);
  Node owner(fabric, {"10.0.0.2"});
  Node reader(fabric, {"10.0.0.1"});
  owner.serve(served, 5);
  reader.accept(target);
  CHECK_EQ(reader.read_one(whole(reader, owner, served, target)), OpStatus::kOk);
  std::vector<Read> reads(64, whole(reader, owner, served, target));
  const uint64_t batch = reader.start(reads, 1000);
  fabric.set_stalled("b", true);
  bool has_failures = false;
  for (OpStatus status : reader.result(batch, 4000)) has_failures |= status != OpStatus::kOk;
  CHECK(has_failures);
  target.clear();
  // As if the host came back: nothing of before may land.
  fabric.set_stalled("b", false);
  CHECK_EQ(fabric.wait([&](Fabric&) { return !target.is_clear(); }, 100), false);
  CHECK(recovers(reader, whole(reader, owner, served, target)));
  CHECK(target.holds(served, 0, 0, kBytes));
}

TEST(idle_probe, "peers: that are gone without a word are found by probes; live ones stay") {
  Fabric fabric(seed);
  for (int i = 1; i <= 3; i++) fabric.add_device({"d" + std::to_string(i), "10.0.0." + std::to_string(i)});
  const auto quick = [](EngineOptions& options) {
    options.idle_probe_ms = 50;
    options.queue_pairs_per_peer = 1;
  };
  Served served(seed, kBytes);
  Target first(kBytes);
  Target second(kBytes);
  Node owner(fabric, {"10.0.0.1"}, 0, quick);
  Node stays(fabric, {"10.0.0.2"}, 0, quick);
  Node goes(fabric, {"10.0.0.3"}, 0, quick);
  owner.serve(served, 5);
  stays.accept(first);
  goes.accept(second);
  CHECK_EQ(stays.read_one(whole(stays, owner, served, first)), OpStatus::kOk);
  CHECK_EQ(goes.read_one(whole(goes, owner, served, second)), OpStatus::kOk);
  // The readers may know before the owner does.
  CHECK(becomes([&] { return owner.engine->stats().accepted_connections == 2; }));
  const uint64_t probes = fabric.work_requests("d1");
  CHECK(fabric.wait([&](Fabric& each) { return each.work_requests("d1") >= probes + 4; }, 5000));
  CHECK_EQ(owner.engine->stats().accepted_connections, 2u);
  fabric.set_stalled("d3", true);
  CHECK(fabric.wait([&](Fabric&) { return owner.engine->stats().accepted_connections == 1; }, 5000));
  CHECK_EQ(stays.read_one(whole(stays, owner, served, first)), OpStatus::kOk);
  fabric.set_stalled("d3", false);
}

TEST(read_only, "peers: can read and cannot write: no queue pair allows it") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  Served served(seed, kBytes);
  Target target(kBytes);
  Node owner(fabric, {"10.0.0.2"});
  Node reader(fabric, {"10.0.0.1"});
  owner.serve(served, 5);
  reader.accept(target);
  CHECK_EQ(reader.read_one(whole(reader, owner, served, target)), OpStatus::kOk);
  CHECK(fabric.wait([](Fabric& each) { return each.writable_queue_pairs() == 0; }, 2000));
  CHECK(fabric.live("qp") > 0);
}

TEST(two_rails, "rails: reads are striped over both, and go on over one when the other dies in the middle") {
  Faults faults;
  faults.nic_delay_us_max = 100;
  Fabric fabric(seed);
  for (const char* name : {"a0", "a1", "b0", "b1"}) {
    fabric.add_device({name, std::string("10.0.") + name[1] + (name[0] == 'a' ? ".1" : ".2")});
  }
  fabric.set_faults(faults);
  Served served(seed, kBytes);
  Target target(kBytes);
  Node owner(fabric, {"10.0.0.2", "10.0.1.2"});
  Node reader(fabric, {"10.0.0.1", "10.0.1.1"});
  owner.serve(served, 5);
  reader.accept(target);
  std::vector<Read> reads;
  for (size_t i = 0; i < 64; i++) {
    reads.push_back({reader.peer(owner), 5, served.addr(i * 4096), {{target.addr(i * 4096), 4096}}});
  }
  const auto carries_again = [&](const char* device) {
    const uint64_t enough = fabric.read_bytes(device) + kBytes;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (fabric.read_bytes(device) < enough) {
      for (OpStatus status : reader.read(reads)) CHECK_EQ(status, OpStatus::kOk);
      CHECK(std::chrono::steady_clock::now() < until);
    }
  };
  carries_again("a0");
  carries_again("a1");
  for (const char* dying : {"b1", "a0"}) {
    const uint64_t batch = reader.start(std::vector<Read>(500, whole(reader, owner, served, target, 4096)), 10000);
    fabric.set_link(dying, false);
    for (OpStatus status : reader.result(batch)) CHECK_EQ(status, OpStatus::kOk);
    target.clear();
    for (OpStatus status : reader.read(reads)) CHECK_EQ(status, OpStatus::kOk);
    CHECK(target.holds(served, 0, 0, kBytes));
    fabric.set_link(dying, true);
    carries_again(dying[1] == '1' ? "a1" : "a0");
  }
  reader.close();
  owner.close();
}

TEST(removed, "devices: one that is removed in the middle of reads ends them; the engine closes all the same") {
  Faults faults;
  faults.nic_delay_us_max = 300;
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  fabric.set_faults(faults);
  {
    Served served(seed, kBytes);
    Target target(kBytes);
    Node owner(fabric, {"10.0.0.2"});
    Node reader(fabric, {"10.0.0.1"});
    owner.serve(served, 5);
    reader.accept(target);
    CHECK_EQ(reader.read_one(whole(reader, owner, served, target)), OpStatus::kOk);
    const uint64_t batch = reader.start(std::vector<Read>(200, whole(reader, owner, served, target)), 2000);
    fabric.remove_device("a");
    const std::vector<OpStatus> statuses = reader.result(batch, 5000);
    CHECK(statuses.back() != OpStatus::kOk);
    CHECK(reader.has_event(EventKind::kDeviceError) || reader.has_event(EventKind::kConnectionLost));
    reader.close();
    owner.close();
  }
  check_clean(fabric);
}

TEST(odd_events, "events: any rdma_cm failure at any time breaks nothing") {
  for (const auto type : {RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_CONNECT_ERROR,
                          RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_DISCONNECTED,
                          RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_ADDR_CHANGE,
                          RDMA_CM_EVENT_TIMEWAIT_EXIT}) {
    Faults faults;
    faults.nic_delay_us_max = 200;
    Fabric fabric(seed);
    fabric.add_device({"a", "10.0.0.1"});
    fabric.add_device({"b", "10.0.0.2"});
    fabric.set_faults(faults);
    {
      Served served(seed, kBytes);
      Target target(kBytes);
      Node owner(fabric, {"10.0.0.2"});
      Node reader(fabric, {"10.0.0.1"});
      owner.serve(served, 5);
      reader.accept(target);
      CHECK_EQ(reader.read_one(whole(reader, owner, served, target)), OpStatus::kOk);
      for (const char* device : {"a", "b"}) {
        const uint64_t batch = reader.start(std::vector<Read>(50, whole(reader, owner, served, target, 4096)));
        fabric.inject_cm(device, type, -EIO);
        reader.result(batch);
        target.clear();
        CHECK(recovers(reader, whole(reader, owner, served, target)));
        CHECK(target.holds(served, 0, 0, kBytes));
      }
    }
    check_clean(fabric);
  }
}

TEST(async_events, "events: any asynchronous event of the device breaks nothing") {
  for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_GID_CHANGE; type++) {
    if (type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED) continue;
    const bool of_queue_pair = type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST ||
                               type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_PATH_MIG || type == IBV_EVENT_PATH_MIG_ERR ||
                               type == IBV_EVENT_QP_LAST_WQE_REACHED;
    if (of_queue_pair) continue;  // the random plans have these
    Fabric fabric(seed);
    fabric.add_device({"a", "10.0.0.1"});
    fabric.add_device({"b", "10.0.0.2"});
    {
      Served served(seed, kBytes);
      Target target(kBytes);
      Node owner(fabric, {"10.0.0.2"});
      Node reader(fabric, {"10.0.0.1"});
      owner.serve(served, 5);
      reader.accept(target);
      CHECK_EQ(reader.read_one(whole(reader, owner, served, target)), OpStatus::kOk);
      for (const char* device : {"a", "b"}) {
        fabric.inject_async(device, static_cast<ibv_event_type>(type));
        target.clear();
        CHECK(recovers(reader, whole(reader, owner, served, target)));
        CHECK(target.holds(served, 0, 0, kBytes));
      }
    }
    check_clean(fabric);
  }
}

TEST(failed_start, "starting: whichever call fails, the error names it and its errno, and nothing is left behind") {
  for (const char* name : {"create_event_channel", "create_id", "bind_addr", "query_device", "query_port", "alloc_pd",
                           "create_comp_channel", "create_cq", "listen", "reg_mr"}) {
    for (uint32_t after = 0; after < 4; after++) {
      Fabric fabric(seed);
      fabric.add_device({"a", "10.0.0.1"});
      fabric.add_device({"b", "10.0.0.2"});
      fabric.fail_call(name, EMFILE, after);
      const size_t descriptors = open_descriptors();
      bool has_failed = false;
      try {
        Node node(fabric, {"10.0.0.1", "10.0.0.2"});
      } catch (const VerbsError& error) {
        has_failed = true;
        CHECK_EQ(error.errnum, EMFILE);
        CHECK(error.call.find(name) != std::string::npos);
      }
      CHECK(has_failed || after > 0);
      CHECK_EQ(open_descriptors(), descriptors);
      check_clean(fabric);
    }
  }
}

TEST(wrong_device, "starting: an address of another device, of none, and one that is in use are refused") {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  Node node(fabric, {"10.0.0.1"});
  const auto fails = [&](const std::string& address, uint16_t port, const char* device) {
    try {
      Node other(fabric, {address}, port, [&](EngineOptions& options) { options.rails[0].device_name = device; });
    } catch (const VerbsError& error) {
      return error.errnum;
    }
    return 0;
  };
  CHECK_EQ(fails("10.0.0.1", 0, "a"), 0);
  CHECK_EQ(fails("10.0.0.1", 0, "b"), ENODEV);
  CHECK_EQ(fails("10.0.0.9", 0, "a"), ENODEV);
  CHECK_EQ(fails("a name", 0, "a"), EINVAL);
  CHECK_EQ(fails("10.0.0.1", node.port(), "a"), EADDRINUSE);
}

}  // namespace meshcache::tests
