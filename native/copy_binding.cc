// copyPagesSync and copyPages.
#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "arguments.h"
#include "bindings.h"
#include "checksum.h"
#include "instance.h"
#include "memory.h"

namespace meshcache {
namespace {

constexpr size_t kPieceColumns = 3;

struct CopyPiece {
  uint64_t target;  // 0: only the checksum
  uint64_t source;
  uint64_t length;
};

// Pages to be copied: page i is pieces first[i] up to and not including first[i + 1].
struct Pages {
  std::vector<CopyPiece> pieces;
  std::vector<size_t> first;
  std::vector<uint32_t> sums;

  void copy(size_t page) {
    uint32_t sum = 0;
    for (size_t i = first[page]; i < first[page + 1]; i++) {
      const CopyPiece& piece = pieces[i];
      const auto* source = reinterpret_cast<const void*>(piece.source);
      sum = piece.target == 0 ? crc32(source, piece.length, sum)
                              : copy_crc32(reinterpret_cast<void*>(piece.target), source, piece.length, sum);
    }
    sums[page] = sum;
  }
};

CopyPiece checked_piece(Napi::Env env, const double* columns) {
  for (size_t i = 0; i < kPieceColumns; i++) {
    if (!is_whole(columns[i], kAddressLimit)) wrong_argument(env, "pieces must be addresses and lengths");
  }
  const CopyPiece piece{static_cast<uint64_t>(columns[0]), static_cast<uint64_t>(columns[1]),
                        static_cast<uint64_t>(columns[2])};
  if (piece.length > 0 && piece.source == 0) wrong_argument(env, "the source of a piece must not be 0");
  return piece;
}

void read_arguments(const Napi::CallbackInfo& info, Pages& pages) {
  const Napi::Env env = info.Env();
  const Napi::Float64Array columns = float64_array(info[0], "pieces");
  if (!info[1].IsTypedArray() || info[1].As<Napi::TypedArray>().TypedArrayType() != napi_uint32_array) {
    wrong_argument(env, "counts must be a Uint32Array");
  }
  const Napi::Uint32Array counts = info[1].As<Napi::Uint32Array>();
  const size_t piece_count = columns.ElementLength() / kPieceColumns;
  if (columns.ElementLength() % kPieceColumns != 0) wrong_argument(env, "pieces must have three numbers for each");
  const size_t page_count = counts.ElementLength();
  pages.first.reserve(page_count + 1);
  pages.first.push_back(0);
  const uint32_t* count = counts.Data();
  for (size_t i = 0; i < page_count; i++) pages.first.push_back(pages.first.back() + count[i]);
  if (pages.first.back() != piece_count) wrong_argument(env, "counts must add up to the number of pieces");
  pages.pieces.reserve(piece_count);
  const double* at = columns.Data();
  for (size_t i = 0; i < piece_count; i++, at += kPieceColumns) pages.pieces.push_back(checked_piece(env, at));
  pages.sums.resize(page_count);
}

Napi::Value sums_array(Napi::Env env, const std::vector<uint32_t>& sums) {
  Napi::Uint32Array array = Napi::Uint32Array::New(env, sums.size());
  std::copy(sums.begin(), sums.end(), array.Data());
  return array;
}

Napi::Value copy_sync(const Napi::CallbackInfo& info) {
  Pages pages;
  read_arguments(info, pages);
  for (size_t page = 0; page < pages.sums.size(); page++) pages.copy(page);
  return sums_array(info.Env(), pages.sums);
}

// One call of copyPages: its threads take the next page each until there is none.
struct SharedCopy {
  Pages pages;
  // Memory of ours that is read or written: an ending environment would unmap it under the threads.
  std::vector<MappingRef> held;
  std::atomic<size_t> next{0};
  std::atomic<size_t> running{0};

  void hold(uint64_t addr, uint64_t length) {
    if (addr == 0 || length == 0) return;
    for (auto known = held.rbegin(); known != held.rend(); ++known) {
      const uint64_t offset = addr - reinterpret_cast<uint64_t>((*known)->begin());
      if (offset < (*known)->length() && length <= (*known)->length() - offset) return;
    }
    MappingRef mapping = mappings::around(addr, length);
    if (mapping != nullptr) held.push_back(std::move(mapping));
  }

  void run() {
    for (size_t page; (page = next++) < pages.sums.size();) pages.copy(page);
  }
};

Napi::Value copy_async(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto work = std::make_shared<SharedCopy>();
  read_arguments(info, work->pages);
  const auto deferred = Napi::Promise::Deferred::New(env);
  if (work->pages.sums.empty()) {
    deferred.Resolve(sums_array(env, {}));
    return deferred.Promise();
  }
  for (const CopyPiece& piece : work->pages.pieces) {
    work->hold(piece.target, piece.length);
    work->hold(piece.source, piece.length);
  }
  Instance& instance = Instance::of(env);
  const size_t threads = std::min(Instance::copy_thread_count(), work->pages.sums.size());
  work->running = threads;
  instance.start_job();
  const auto job = [work, deferred, &instance] {
    work->run();
    if (--work->running > 0) return;
    work->held.clear();
    instance.complete_job([work, deferred](Napi::Env on) { deferred.Resolve(sums_array(on, work->pages.sums)); });
  };
  for (size_t i = 0; i < threads; i++) instance.copy_threads().submit(job);
  return deferred.Promise();
}

}  // namespace

void export_copies(Napi::Env env, Napi::Object exports) {
  exports.Set("copyPagesSync", Napi::Function::New(env, copy_sync, "copyPagesSync"));
  exports.Set("copyPages", Napi::Function::New(env, copy_async, "copyPages"));
}

}  // namespace meshcache
