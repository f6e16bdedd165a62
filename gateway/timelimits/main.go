// Command timelimits is a payment on a framework of Go, with the middleware that limits its time.
// The argument names the framework. The tests of package gateway start it.
//
// It is a module of its own, so that nothing else has these frameworks among its modules.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	gintimeout "github.com/gin-contrib/timeout"
	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	fibertimeout "github.com/gofiber/fiber/v3/middleware/timeout"
)

const limit = 300 * time.Millisecond

var address = "127.0.0.1:" + os.Getenv("PORT")

func main() {
	frameworks := map[string]func() error{"gin": onGin, "fiber": onFiber}
	if err := frameworks[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func onGin() error {
	gin.SetMode(gin.ReleaseMode)
	app := gin.New()
	app.POST("/payments", gintimeout.New(gintimeout.WithTimeout(limit)), func(c *gin.Context) {
		pay(c.GetHeader("Idempotency-Key"), c.GetHeader("X-Event"))
		c.String(http.StatusCreated, "paid")
	})
	return app.Run(address)
}

func onFiber() error {
	app := fiber.New()
	app.Post("/payments", fibertimeout.New(func(c fiber.Ctx) error {
		pay(c.Get("Idempotency-Key"), c.Get("X-Event"))
		return c.Status(http.StatusCreated).SendString("paid")
	}, fibertimeout.Config{Timeout: limit}))
	return app.Listen(address, fiber.ListenConfig{DisableStartupMessage: true})
}

// pay is the work, which goes on when the limit has answered.
func pay(key, event string) {
	tell("begun", key)
	switch event {
	case "slow":
		tell("wait", key)
	case "late":
		time.Sleep(2 * time.Second)
	}
	tell("ended", key)
}

func tell(what, key string) {
	address := os.Getenv("BOOK") + "/" + what + "/" + key
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, address, http.NoBody) //nolint:gosec // the test's own
	if err != nil {
		panic(err) // names the address
	}
	answer, err := http.DefaultClient.Do(request) //nolint:gosec // the same
	if err != nil {
		panic(err) // the test has ended
	}
	_ = answer.Body.Close()
}
