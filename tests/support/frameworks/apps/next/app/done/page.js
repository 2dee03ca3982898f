import { cookies } from "next/headers";

export default async function Done() {
  return <p>got {(await cookies()).get("said").value}</p>;
}
