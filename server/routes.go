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
	s.doorRoutes(e)
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
	incr := takes("by", "ttl_ms", "template", "calendar", "zone", "at")
	e.GET("/incr/:key", s.incr, handsOut, incr)
	e.POST("/incr/:key", s.incr, handsOut, incr)
	e.GET("/counter/:key", s.readCounter, no)
	e.PUT("/counter/:key", s.setCounter, no)
	e.DELETE("/counter/:key", s.removeCounter, no)
	e.GET("/counter", s.listCounters, takes("prefix", "cursor", "n"))

	e.GET("/id/snowflake", s.snowflakes, handsOut, takes("n", "format", "width"))
	e.GET("/id/snowflake/:pool", s.snowflakes, handsOut, takes("n", "format", "width"))
	e.GET("/id/segment/:tag", s.segmentIDs, handsOut, takes("n", "format", "width"))
	e.GET("/id/uuid", s.uuids, handsOut, takes("n", "version"))
	e.GET("/id/decode/:id", s.decodeID, takes("format", "pool", "layout", "epoch", "datacenter", "tag", "key"))
}

// doorRoutes are those of other systems. Such a system takes any method, and parameters that it does not know.
func (s *Server) doorRoutes(e *echo.Echo) {
	all := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	e.Match(all, "/api/segment/get/:key", s.leafSegment)
	e.Match(all, "/api/snowflake/get/:key", s.leafSnowflake)
	e.Match(all, "/decodeSnowflakeId", s.leafDecode)
	e.Match(all, "/cache", s.leafCache)
	e.Match(all, "/db", s.leafDB)

	e.Match(all, "/tinyid/id/nextId", s.tinyidNext)
	e.Match(all, "/tinyid/id/nextIdSimple", s.tinyidNextSimple)
	e.Match(all, "/tinyid/id/nextSegmentId", s.tinyidRange)
	e.Match(all, "/tinyid/id/nextSegmentIdSimple", s.tinyidRangeSimple)
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
