import { cookies } from "next/headers";
import { redirect } from "next/navigation";

async function send(form) {
  "use server";
  (await cookies()).set("said", form.get("said"), { secure: true, httpOnly: true });
  redirect("/done");
}

export default function Page() {
  return (
    <form action={send}>
      <input name="said" />
      <button>send</button>
    </form>
  );
}
