// Package chicheck tests that the middleware of package idempotency fits chi as it is: there is no
// adapter to import. It is a module of its own, so that nothing else has chi among its modules.
package chicheck
