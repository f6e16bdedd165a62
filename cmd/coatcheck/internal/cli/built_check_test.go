//go:build check

package cli

import "testing"

// withRaces reports whether processes of their own run with the race detector: see built.
const withRaces = true

// Races in a process of its own make it end with another code, and write to standard error.
func TestProcessesOfTheirOwnHaveNoRaces(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"lock run that shares":           TestLockRunSharedAndWithPermits,
		"lock run in vain":               TestLockRunWithoutALockToBeHad,
		"command and its end":            TestRunEndsAsItsCommandDoes,
		"command and signals":            TestRunPassesSignalsOn,
		"lock run that is quit":          TestQuitEndsTheWaitForALock,
		"lock that is broken":            TestCommandIsKilledWhenItsLockIsBroken,
		"lock within a lock":             TestLockRunWithinLockRunTellsTheInnerLock,
		"worker run in vain":             TestWorkerRunWithoutAnIdToBeHad,
		"both lines of the file":         TestBothLinesOfTheFileAreOneMoment,
		"whole group":                    TestLeaseIsKeptUntilTheWholeGroupHasEnded,
		"terminal":                       TestCommandOfLockRunReadsTheTerminal,
		"settings that are read again":   TestSettingsAreReadAgainOnHangup,
		"certificate that is read again": TestCertificateIsReadAgainWithoutDroppingConnections,
		"gateway that is killed":         TestKilledGatewayLeavesTheOutcomeUnknown,
		"incr":                           TestProcessesThatIncrAtOnceGetDifferentValues,
	} {
		t.Run(name, test)
	}
}
