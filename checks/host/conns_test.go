package host

import "testing"

const snmp = `Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails
Tcp: 1 200 120000 -1 53855 52967 839
Udp: InDatagrams
Udp: 7
`

func TestParsePassiveOpens(t *testing.T) {
	if n, err := parsePassiveOpens([]byte(snmp)); n != 52967 || err != nil {
		t.Errorf("parsePassiveOpens = %d, %v; want 52967", n, err)
	}
	for name, b := range map[string]string{
		"nothing":       "",
		"no such name":  "Tcp: RtoMin\nTcp: 1\n",
		"no values":     "Tcp: RtoMin PassiveOpens\n",
		"too few":       "Tcp: RtoMin PassiveOpens\nTcp: 1\n",
		"not a number":  "Tcp: PassiveOpens\nTcp: many\n",
		"another table": "Udp: PassiveOpens\nUdp: 5\n",
	} {
		if n, err := parsePassiveOpens([]byte(b)); err == nil {
			t.Errorf("parsePassiveOpens(%s) = %d, want an error", name, n)
		}
	}
}

func FuzzParsePassiveOpens(f *testing.F) {
	f.Add([]byte(snmp))
	f.Add([]byte("Tcp: PassiveOpens\nTcp: 18446744073709551616\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parsePassiveOpens(b); err != nil && n != 0 {
			t.Errorf("parsePassiveOpens(%q) = %d and %v", b, n, err)
		}
	})
}
