package server

import (
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
)

// uuids makes UUIDs. Those of version 7 rise, from one to the next that this process makes, also
// where its clock goes back.
func (s *Server) uuids(c echo.Context) error {
	asked, err := idOrder(c)
	if err != nil {
		return err
	}
	version, newID := c.QueryParam("version"), uuid.NewV7
	switch {
	case version == "7", !has(c, "version"):
		version = "7"
	case version == "4":
		newID = uuid.NewRandom
	default:
		return invalid("version", "4 (random) or 7 (rising with time)")
	}
	ids := make([]uuid.UUID, asked.n)
	for i := range ids {
		if ids[i], err = newID(); err != nil {
			return err
		}
	}
	s.metrics.IDs("uuid", len(ids))
	return sendIDs(c, asked, `{"version":`+version, func(dst []byte, i int) ([]byte, error) { return append(dst, ids[i].String()...), nil })
}
