package main

import (
	"syscall"
	"time"
)

// doze sleeps on this thread, nearly to the point. A signal may end it sooner, which happens
// rarely enough.
func doze(span time.Duration) {
	left := syscall.NsecToTimespec(span.Nanoseconds())
	_ = syscall.Nanosleep(&left, nil)
}
