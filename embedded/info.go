package embedded

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// redisVersion is the Redis that the store's commands resemble most. Clients should probe instead.
const redisVersion = "7.2.0"

func newIncarnation() string {
	id := make([]byte, 20)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// infoLocked answers the sections that miniredis lacks, and leaves the others to it.
func (s *Store) infoLocked(peer *server.Peer, args []string) {
	sections := args[1:]
	if len(sections) == 0 {
		sections = []string{"default"}
	}
	var text []string
	for _, section := range sections {
		switch strings.ToLower(section) {
		case "server":
			text = append(text, s.infoServer())
		case "replication":
			text = append(text, s.infoReplication())
		case "default", "all", "everything":
			text = append(text, s.infoServer(), s.infoReplication())
		default:
			s.dispatchLocked(peer, args)
			return
		}
	}
	peer.WriteBulk(strings.Join(text, "\r\n"))
}

func (s *Store) infoServer() string {
	return "# Server\r\nredis_version:" + redisVersion + "\r\nserver_name:coatcheck-embedded\r\nredis_mode:standalone\r\n"
}

func (s *Store) infoReplication() string {
	return "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:" + s.incarnation + "\r\n"
}
