package daemon

import (
	"encoding/json"
	"net/http"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/control"
)

// maxRequest limits a request to the control socket, in bytes.
const maxRequest = 64 << 10

// socketHandler answers requests to the control socket: pages, and changes.
func (w *work) socketHandler(pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.HandleFunc(api.ControlPath, func(out http.ResponseWriter, _ *http.Request) {
		writeControlled(out, http.StatusNotFound, &api.Controlled{Error: "send POST to " + api.ControlPath})
	})
	mux.HandleFunc("POST "+api.ControlPath, w.answerChange)
	return mux
}

// answerChange answers a request for a change of servers.
func (w *work) answerChange(out http.ResponseWriter, r *http.Request) {
	if w.control == nil {
		writeControlled(out, http.StatusUnprocessableEntity, &api.Controlled{Error: "the running nftproxy takes no runtime changes: they are of Balances in files, and need --control-socket or its systemd unit"})
		return
	}
	request := new(api.Control)
	d := json.NewDecoder(http.MaxBytesReader(out, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(request); err != nil {
		writeControlled(out, http.StatusBadRequest, &api.Controlled{Error: "read request: " + err.Error()})
		return
	}
	peer := control.PeerOf(r)
	answer := w.control.answer(r.Context(), request, peer)
	status := http.StatusOK
	if answer.Error != "" {
		status = http.StatusUnprocessableEntity
		w.Log.Warn("a runtime change is refused", "command", request.Action, "object", request.Balance, "server", request.Server, "uid", peer.UID, "pid", peer.PID, "error", answer.Error)
	}
	writeControlled(out, status, answer)
}

func writeControlled(w http.ResponseWriter, status int, answer *api.Controlled) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // an error: the client is gone
}
