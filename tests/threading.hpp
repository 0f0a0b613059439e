// Threads that a test starts and waits for, and a latch at which they wait.
#ifndef RAG_RETRIEVE_TESTS_THREADING_HPP
#define RAG_RETRIEVE_TESTS_THREADING_HPP

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace threading {

class threads {
 public:
  void start(std::function<void()> body) { all_.emplace_back(std::move(body)); }
  void join() {
    for (std::thread& each : all_) each.join();
    all_.clear();
  }
  ~threads() { join(); }

 private:
  std::vector<std::thread> all_;
};

/// Closed until somebody opens it.
class latch {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace threading

#endif
