// Which signals the threads of the addon take.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace meshcache {

// Threads that are started while it lives take no signals: those are for the program's own threads. Faults are the
// exception: a fault whose signal is blocked ends the process, without the handler (fault_guard.h).
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace meshcache
