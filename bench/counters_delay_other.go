//go:build !linux

package main

import "time"

func doze(span time.Duration) { time.Sleep(span) }
