package main

import (
	"syscall"
	"time"
)

// doze sleeps on this thread, to within some 50 µs. A signal may end it sooner, which happens
// rarely enough.
func doze(span time.Duration) {
	left := syscall.NsecToTimespec(span.Nanoseconds())
	_ = syscall.Nanosleep(&left, nil)
}
