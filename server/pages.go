package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
)

// about is the index, a line for each part of the API.
const about = `coatcheck: what must not be handed out twice, on Redis

/token   one-use tokens: an operation begins once, and who repeats it gets its answer
/incr    counters whose values no caller gets twice; /counter reads, sets and lists them
/id      ids: Snowflake, from segments, UUIDs
/worker  worker ids, leased for a window of time
/lock    locks with a fence, and a queue
`

// showIndex answers a person who opens the service in a browser.
func showIndex(c echo.Context) error {
	var lines []string
	for _, route := range c.Echo().Routes() {
		lines = append(lines, fmt.Sprintf("%-32s %s", braces(route.Path), route.Method))
	}
	slices.Sort(lines)
	return c.String(http.StatusOK, about+"\n"+strings.Join(lines, "\n")+"\n")
}

// showProblem answers with the page that a problem's type links to.
func showProblem(c echo.Context) error {
	page, ok := api.Page(api.Code(c.Param("code")))
	if !ok {
		return echo.ErrNotFound
	}
	c.Response().Header().Set(echo.HeaderContentSecurityPolicy, api.PagePolicy)
	return c.HTML(http.StatusOK, page)
}
