package main

import (
	"syscall"
	"time"
)

// processorTime is how much processor time this process has used, in microseconds.
func processorTime() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return float64(time.Duration(used.Utime.Nano()+used.Stime.Nano()).Nanoseconds()) / 1000
}
