package redisconn

import "strings"

// ParseInfo reads the answer to INFO: lines of name:value.
func ParseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}
