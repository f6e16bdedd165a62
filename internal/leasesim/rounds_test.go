//go:build !check

package leasesim

// usual is how many rounds there are unless the flag says otherwise: a bounded run for the middle
// of a change.
const usual = full / 5
