package server

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// routes is the whole API on a page.
func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = s.writeError
	e.Use(s.around()...)

	s.tokenRoutes(e)
	s.numberRoutes(e)
	s.leaseRoutes(e)
	s.operationRoutes(e)
	return e
}

var no = takes() // query parameters

func (s *Server) tokenRoutes(e *echo.Echo) {
	e.POST("/token", s.issueToken, no)
	e.GET("/token/:token", s.tokenStatus, no)
	e.POST("/token/:token/claim", s.claimToken, no)
	e.POST("/token/:token/complete", s.completeToken, no)
	e.POST("/token/:token/extend", s.extendToken, no)
	e.POST("/token/:token/release", s.releaseToken, no)

	if s.config.Dev {
		e.POST("/payments", s.pay, no, s.guard(s.paymentRoute()))
		e.GET("/payments", s.listPayments, no)
	}
}

func (s *Server) numberRoutes(e *echo.Echo) {
	e.GET("/incr/:key", s.incr, handsOut, takes("by", "ttl_ms"))
	e.POST("/incr/:key", s.incr, handsOut, takes("by", "ttl_ms"))
	e.GET("/counter/:key", s.readCounter, no)
	e.PUT("/counter/:key", s.setCounter, no)
	e.DELETE("/counter/:key", s.removeCounter, no)
	e.GET("/counter", s.listCounters, takes("prefix", "cursor", "n"))

	e.GET("/id/snowflake", s.snowflakes, handsOut, takes("n", "format", "width"))
	e.GET("/id/snowflake/:pool", s.snowflakes, handsOut, takes("n", "format", "width"))
	e.GET("/id/decode/:id", s.decodeID, takes("format", "pool", "layout", "epoch", "datacenter"))
}

func (s *Server) leaseRoutes(e *echo.Echo) {
	e.POST("/worker/:pool", s.acquireWorker, no)
	e.PUT("/worker/:pool", s.createPool, no)
	e.GET("/worker", s.listPools, takes("prefix", "cursor", "n"))
	e.GET("/worker/:pool", s.ring, takes("from", "n"))
	e.PUT("/worker/:pool/:worker_id", s.renewWorker, no)
	e.DELETE("/worker/:pool/:worker_id", s.releaseWorker, takes("used_until"))

	e.POST("/lock/:name", s.acquireLock, no)
	e.PUT("/lock/:name", s.renewLock, no)
	e.DELETE("/lock/:name", s.releaseLock, takes("force"))
	e.GET("/lock/:name", s.showLock, no)
	e.GET("/lock", s.listLocks, takes("prefix", "cursor", "n"))
}

func (s *Server) operationRoutes(e *echo.Echo) {
	looks := []string{http.MethodGet, http.MethodHead}
	e.Match(looks, "/", s.index)
	e.Match(looks, "/livez", s.live)
	e.Match(looks, "/readyz", s.ready)
	e.GET("/problems/:code", s.problem)
	e.GET(policyPath, s.policies)
	e.GET("/favicon.ico", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
}
