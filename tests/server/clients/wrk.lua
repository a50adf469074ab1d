-- wrk.lua - short completions; what is not 200 with a text is counted by wrk as an error.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local n = 0
function request()
    n = n + 1
    local body = string.format('{"prompt": "Once upon a time %d", "max_tokens": 4, "stream": %s}',
        n, n % 2 == 0 and "true" or "false")
    return wrk.format(nil, "/v1/completions", nil, body)
end
