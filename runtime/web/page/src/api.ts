// Requests to the server.

/** The server refused, or does not answer; the message is for the user. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

async function refusal(answer: Response): Promise<Refused> {
  const text = await answer.text();
  try {
    return new Refused(answer.status, (JSON.parse(text) as { error: string }).error);
  } catch {
    return new Refused(answer.status, text || `the server answered ${answer.status}`);
  }
}

async function send(path: string, options: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, "the head cannot be reached; is `kumi web` still running?");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export async function get<T>(path: string): Promise<T> {
  return (await send(path, {})).json() as Promise<T>;
}

export async function post(path: string): Promise<void> {
  await send(path, { method: "POST", headers: { "x-kumi-request": "1" } });
}
